"""`python -m kytolly`: the command line, as `kytolly`."""

from kytolly.command.entry import entry

if __name__ == "__main__":
    entry()
