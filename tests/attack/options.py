"""Options of an attack, which the test runner must not see."""
import sys


def option(name, usual):
    """The number behind `name` on the command line, which is taken out of it; `usual` when it is not there."""
    if name not in sys.argv:
        return usual
    place = sys.argv.index(name)
    value = int(sys.argv[place + 1])
    del sys.argv[place:place + 2]
    return value
