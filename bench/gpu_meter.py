"""Reads from NVIDIA's management library the used memory of one GPU, and how busy its SMs are over a time.

Without the library or the figure the answers are None, and the report leaves the figure out.
"""
import ctypes

SM_BUSY, SM_OCCUPANCY = 2, 3  # NVML_GPM_METRIC_SM_UTIL, NVML_GPM_METRIC_SM_OCCUPANCY: percent
METRICS = 512  # room for more than any version of the library has


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Metric(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint), ("result", ctypes.c_uint), ("value", ctypes.c_double),
                ("short_name", ctypes.c_char_p), ("long_name", ctypes.c_char_p), ("unit", ctypes.c_char_p)]


class _Metrics(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint), ("count", ctypes.c_uint), ("begin", ctypes.c_void_p),
                ("end", ctypes.c_void_p), ("metrics", _Metric * METRICS)]


class GpuMeter:
    """Reads the GPU with this number, as the driver numbers GPUs."""

    def __init__(self, ordinal, library="libnvidia-ml.so.1", load=ctypes.CDLL):
        self.library = self.device = None
        try:
            loaded = load(library)
        except OSError:
            return
        device = ctypes.c_void_p()
        self.library = loaded
        if self._good("nvmlInit_v2") and self._good("nvmlDeviceGetHandleByIndex_v2", ordinal, ctypes.byref(device)):
            self.device = device

    def _good(self, call, *arguments):
        """Whether the library has the call and it succeeded."""
        function = getattr(self.library, call, None)
        return function is not None and function(*arguments) == 0

    def used_memory(self):
        """The used bytes, of all processes together."""
        memory = _Memory()
        if self.device is None or not self._good("nvmlDeviceGetMemoryInfo", self.device, ctypes.byref(memory)):
            return None
        return memory.used

    def sample(self):
        """A sample, which over() compares with a later one."""
        taken = ctypes.c_void_p()
        if self.device is None or not self._good("nvmlGpmSampleAlloc", ctypes.byref(taken)):
            return None
        return taken if self._good("nvmlGpmSampleGet", self.device, taken) else None

    def over(self, begin, end):
        """{metric: percent} between two samples, which over() frees."""
        if begin is None or end is None:
            return {}
        asked = _Metrics(version=1, count=2, begin=begin, end=end)
        asked.metrics[0].id, asked.metrics[1].id = SM_BUSY, SM_OCCUPANCY
        answered = self._good("nvmlGpmMetricsGet", ctypes.byref(asked))
        for sample in (begin, end):
            self._good("nvmlGpmSampleFree", sample)
        return {metric.id: metric.value for metric in asked.metrics[:2] if answered and metric.result == 0}
