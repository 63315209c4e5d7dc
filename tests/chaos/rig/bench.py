"""What a fault works with."""
import time

from harness import HttpError, eventually

from .load import SMALL
from .site import GATEWAYS, MANAGER, NODES

GONE = ("SUSPECT", "DEAD", "LEFT")
ENDED = ("DEAD", "LEFT")


class Bench:
    """What one fault works with. `note`: {figure: milliseconds}."""

    def __init__(self, site, history, watch, random):
        self.site, self.history, self.watch, self.random = site, history, watch, random
        self.note, self.kills, self.target, self.began = {}, 0, "", 0.0

    def begin(self, target):
        self.target, self.began = target, time.monotonic()
        self.history.mark("fault", target)

    def last(self, seconds):
        """Lets the fault go on for a time."""
        time.sleep(seconds)

    def noticed(self, member, states=GONE):
        """Waits until the member was seen in one of the states."""
        at = eventually(lambda: self.watch.first(member, self.began, states), f"{member} is noticed ({self.target})")
        self.note["detection_ms"] = (at - self.began) * 1e3
        if member in NODES and states == ENDED:
            self.note["node_detection_ms"] = self.note["detection_ms"]

    def resident_on(self, place):
        """The functions whose models are on this GPU; first those whose models are on no other GPU."""
        found = []
        for name in sorted(SMALL):
            try:
                places = self.site.http(GATEWAYS[0]).function(name).get("resident_on", [])
            except (HttpError, OSError):
                continue
            if place in places:
                found.append((len(places), name))
        return [name for _, name in sorted(found)]

    def adopters(self, function):
        for gateway in GATEWAYS:
            try:
                return self.site.http(gateway).function(function).get("adopted_by", [])
            except (HttpError, OSError):
                continue
        return []

    def restart_manager(self):
        began = time.monotonic()
        self.site.start(MANAGER)
        self.note["manager_restart_ms"] = (time.monotonic() - began) * 1e3
        self.site.wait_members()
        self.note["manager_members_ms"] = (time.monotonic() - began) * 1e3
        infers = [entry for entry in self.history.failed_tries(self.began) if entry[1] == "infer"]
        self.note["manager_away_failed_tries"] = float(len(infers))
