"`python -m fewshot_nb` is the command `fewshot_nb`."
import sys

def command():
    "The command line; what takes time to import is imported here, where Ctrl-C is one line."
    try: from fewshot_nb.cli.main import main
    except KeyboardInterrupt:
        print("\nfewshot_nb: stopped before anything was done.", file=sys.stderr)
        sys.exit(130)
    main()

if __name__ == "__main__": command()
