"""Clients at a pace, behind what a load balancer does: a gateway that refuses or drops a connection, or says 503, is passed
over for the next one. A request has failed when no gateway answered it well within its time."""
import http.client
import json
import threading
import time

REQUEST_SECONDS = 30


class Clients:
    def __init__(self, gateways, function, body, key):
        self.gateways, self.path, self.body = list(gateways), f"/v2/models/{function}/infer", body
        self.headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def ask(self, connections, first):
        """The answer as JSON; RuntimeError when none came. `connections`: those of one thread, kept open."""
        end, last, turn = time.monotonic() + REQUEST_SECONDS, None, first
        while time.monotonic() < end:
            gateway = self.gateways[turn % len(self.gateways)]
            turn += 1
            try:
                if gateway not in connections:
                    connections[gateway] = http.client.HTTPConnection(gateway, timeout=REQUEST_SECONDS)
                connections[gateway].request("POST", self.path, self.body, self.headers)
                response = connections[gateway].getresponse()
                text = response.read()
                if response.status == 200:
                    return json.loads(text)
                last = f"{response.status} {text[:200]!r}"
                if response.status not in (429, 502, 503, 504):
                    break
            except (OSError, http.client.HTTPException) as error:
                last = repr(error)
            dropped = connections.pop(gateway, None)
            if dropped is not None:
                dropped.close()
            time.sleep(0.02)  # the balancer's pause between two tries
        raise RuntimeError(f"no gateway answered: {last}")

    def run(self, threads, until, pace=0.0):
        """Requests by so many threads until `until` is set, each thread `pace` of them a second (0: without a pause).
        Answers (answered, [failures])."""
        answered, failures, lock = [0], [], threading.Lock()

        def work(number):
            connections, due = {}, time.monotonic()
            while not until.is_set():
                try:
                    self.ask(connections, number)
                    with lock:
                        answered[0] += 1
                except Exception as failure:
                    with lock:
                        failures.append(str(failure))
                if pace:
                    due += 1 / pace
                    until.wait(max(0.0, due - time.monotonic()))

        workers = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return answered[0], failures

    def capacity(self, threads, seconds):
        """Requests a second that the cluster answers when it is asked without a pause."""
        until, began = threading.Event(), time.monotonic()
        threading.Timer(seconds, until.set).start()
        answered, failures = self.run(threads, until)
        assert not failures, failures[:3]
        return answered / (time.monotonic() - began)


class Traffic:
    """Clients.run beside the caller; `stop` answers (answered, failures)."""

    def __init__(self, clients, threads, pace):
        self.until, self.result = threading.Event(), None
        self.thread = threading.Thread(target=self._run, args=(clients, threads, pace), daemon=True)
        self.thread.start()

    def _run(self, clients, threads, pace):
        self.result = clients.run(threads, self.until, pace)

    def stop(self):
        self.until.set()
        self.thread.join(REQUEST_SECONDS * 2)
        return self.result
