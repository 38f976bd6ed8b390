"""Several runs at once on one GPU: files are read and results proved side by side, but one alone is timed."""
import fcntl


class Turns:
    """A file that all runs on the GPU name. Without one, nobody else is there."""

    def __init__(self, name):
        self.file = open(name, "a") if name else None

    def _lock(self, how):
        if self.file is not None:
            fcntl.flock(self.file, how)

    def together(self):
        """Work on the GPU that others may see: waits for whoever is timed."""
        self._lock(fcntl.LOCK_SH)

    def alone(self):
        """Nobody else is at work on the GPU until together() or away()."""
        self._lock(fcntl.LOCK_EX)

    def away(self):
        """No work on the GPU."""
        self._lock(fcntl.LOCK_UN)
