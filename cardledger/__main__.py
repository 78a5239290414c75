"""`python -m cardledger`, which is how `up` starts its children."""

from cardledger.commands.cli import main

if __name__ == "__main__":
    main()
