"Packaging: everything that can vary is read from settings.ini."
import shutil
from configparser import ConfigParser
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

here = Path(__file__).parent
config = ConfigParser(delimiters=["="])
config.read(here/"settings.ini", encoding="utf-8")
cfg = config["DEFAULT"]
extras = {name: cfg[f"{name}_requirements"].split() for name in ("slurm", "notebook", "dev")}


class BuildWithNotebooks(build_py):
    "Put the experiment notebooks and their committed results beside the code, as `fewshot_nb/_nbs`."
    def run(self):
        super().run()
        if self.editable_mode: return  # a checkout's own nbs/ is found first
        target = self._notebooks()
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for notebook in (here/"nbs").glob("exp_*.ipynb"): shutil.copy2(notebook, target)
        if (here/"nbs/results").is_dir(): shutil.copytree(here/"nbs/results", target/"results")

    def _notebooks(self): return Path(self.build_lib)/cfg["lib_name"]/"_nbs"

    def get_outputs(self, include_bytecode=True):
        "Also these files: what an installer does not know of it leaves behind, and an empty shell hides a checkout."
        return super().get_outputs(include_bytecode) + [str(p) for p in self._notebooks().rglob("*") if p.is_file()]


setup(
    name=cfg["lib_name"],
    version=cfg["version"],
    description=cfg["description"],
    long_description=(here/"README.md").read_text(encoding="utf-8") if (here/"README.md").exists() else "",
    long_description_content_type="text/markdown",
    author=cfg["author"],
    author_email=cfg["author_email"],
    url=cfg["git_url"],
    license="Apache-2.0",
    keywords=cfg["keywords"],
    packages=find_packages(include=["fewshot_nb", "fewshot_nb.*"]),
    package_data={"fewshot_nb": ["papers/*.csv", "splits/*", "weights/*", "banks/*"]},
    include_package_data=False,
    python_requires=f">={cfg['min_python']}",
    install_requires=cfg["requirements"].split(),
    extras_require=extras,
    entry_points={"console_scripts": cfg["console_scripts"].split(),
                  "nbdev": [f"{cfg['lib_name']}={cfg['lib_path']}._modidx:d"]},
    cmdclass={"build_py": BuildWithNotebooks},
    zip_safe=False,
)
