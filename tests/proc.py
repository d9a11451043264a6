"What /proc says of a process: for tests that stop and kill some."
from pathlib import Path

def alive(pid):
    try: return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError: return False

def command_line(pid):
    try: return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError: return b""
