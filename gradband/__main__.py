"""`python -m gradband`."""

from gradband.cli.main import main

main()
