"`python -m fewshot_nb` is the command `fewshot_nb`."
from fewshot_nb.cli.main import main

main()
