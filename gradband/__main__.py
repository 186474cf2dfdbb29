"""`python -m gradband`."""

from gradband.cli import main

main()
