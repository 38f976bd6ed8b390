"""The time of a sequence of launches: on the host by its clock, on a GPU by events around a graph."""
import time


class HostClock:
    mode = "host"
    least_seconds, least_launches, most_sets = 1e-3, 1, 32
    warning = ""

    def load(self, launches):
        self.launches = launches
        for launch in launches:
            launch()

    def run(self):
        for launch in self.launches:
            launch()

    def run_seconds(self):
        begin = time.perf_counter()
        self.run()
        return time.perf_counter() - begin


class GraphClock:
    """What the events enclose waits behind a kernel that sleeps, so that no time of the host is in it."""

    mode = "graph"
    least_seconds, least_launches, most_sets = 200e-6, 64, 2048
    SLEEP, MOST_SLEEP = 2_000_000, 400_000_000  # cycles

    def __init__(self, torch):
        self.torch = torch
        self.start, self.stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.sleep = self.SLEEP
        self.graph = None
        self.warning = ""
        self.warm = set()

    def load(self, launches):
        cuda = self.torch.cuda
        self.graph = None  # its memory may serve the next one
        # Kernels compile and tables of addresses fill at the first launch, which no graph may hold.
        stream = cuda.Stream()
        stream.wait_stream(cuda.current_stream())
        with cuda.stream(stream):
            for launch in dict.fromkeys(launches):
                if launch not in self.warm:
                    launch()
        self.warm.update(launches)
        cuda.synchronize()
        self.graph = cuda.CUDAGraph()
        with cuda.graph(self.graph):
            for launch in launches:
                launch()
        cuda.synchronize()

    def run(self):
        self.graph.replay()
        self.torch.cuda.synchronize()

    def run_seconds(self):
        cuda = self.torch.cuda
        while True:
            cuda.synchronize()
            cuda._sleep(self.sleep)
            self.start.record()
            self.graph.replay()
            self.stop.record()
            in_time = not self.start.query()  # all was queued before the sleep ended
            self.stop.synchronize()
            if not in_time and self.sleep >= self.MOST_SLEEP:
                self.warning, self.sleep = "the host queued too slowly: its time may be in the samples", self.SLEEP
            if in_time or self.warning:
                return self.start.elapsed_time(self.stop) * 1e-3
            self.sleep *= 2


def clock_for(arrays):
    return GraphClock(arrays.torch) if arrays.on_gpu else HostClock()
