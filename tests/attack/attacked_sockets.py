"""The sockets at which frames are aimed, and what a stranger sends there."""
import array
import socket
import ssl
import struct

from harness.processes import open_files

KINDS = range(8)
NODE = 32  # bytes of a node id


def header(kind, length, rest=b"\0" * 24):
    return struct.pack(">BBBBI", kind, 0, 0, 0, length) + rest


def mutated(frame, chance):
    frame = bytearray(frame)
    for _ in range(chance.choice((0, 1, 1, 2, 8))):
        what, at = chance.randrange(4), chance.randrange(len(frame) + 1)
        if what == 0 and at < len(frame):
            frame[at] ^= 1 << chance.randrange(8)
        elif what == 1:
            frame[at:at] = chance.randbytes(chance.choice((1, 4, 300)))
        elif what == 2:
            del frame[at:at + chance.randrange(1, 9)]
        elif at < len(frame):
            frame[at] = chance.choice((0, 0xFF, 0x80, 10))
    return bytes(frame)


class Socket:
    """`refused`: the metrics at which a daemon counts what it refuses there."""
    refused = ()

    def strike(self, line, chance):
        """Sends frames over a fresh connection and answers how many."""
        frames = self.frames(chance)
        for frame in frames:
            self.send(line, frame, chance)
        return len(frames)

    @staticmethod
    def send(line, frame, chance):
        line.sendall(frame)


class TcpSocket(Socket):
    def __init__(self, address):
        host, _, port = address.rpartition(":")
        self.address = (host, int(port))

    def connect(self):
        return socket.create_connection(self.address, timeout=10)


class CafPeer:
    """Frames of CAF, as they are sent to a daemon's actors."""
    kind = "actor"
    refused = ('troupe_peer_connections_refused_total{reason="broken_frame"}',)
    conversations = ()  # what real programs have sent, which is sent again with mutations

    def meet(self, receive):
        """The daemon's handshake begins with its node id; that of another process has other bytes behind the kind."""
        said = b""
        while len(said) < 32 + NODE:
            piece = receive(4096)
            assert piece, "the daemon hung up on a peer that did nothing"
            said += piece
        self.kind_of_node = said[32:32 + 8]

    def hello(self, chance):
        return header(1, NODE) + self.kind_of_node + chance.randbytes(NODE - 8)

    def frames(self, chance):
        if self.conversations and chance.random() < 0.5:
            return (mutated(chance.choice(self.conversations), chance),)
        hello = bytearray(self.hello(chance))
        frame = bytearray(header(chance.choice(KINDS), chance.choice((0, 1, 40, 1 << 16, 1 << 26, 0xFFFFFFFF)),
                                 chance.randbytes(24)) + chance.randbytes(chance.randrange(64)))
        if chance.random() < 0.5:
            frame[chance.randrange(len(frame))] ^= 1 << chance.randrange(8)
        if chance.random() < 0.3:
            hello[chance.randrange(len(hello))] ^= 1 << chance.randrange(8)
        return (bytes(frame),) if chance.random() < 0.3 else (bytes(hello), bytes(frame))


class LocalActor(CafPeer, Socket):
    """The port of a daemon's actors on this machine: loopback addresses are abstract Unix sockets."""

    def __init__(self, address):
        self.address = f"\0troupe/{address}"
        with self.connect() as line:
            self.meet(line.recv)

    def connect(self):
        line = socket.socket(socket.AF_UNIX)
        line.settimeout(10)
        line.connect(self.address)
        return line


class NetworkActor(CafPeer, TcpSocket):
    """The port of a daemon's actors on a network without certificates."""

    def __init__(self, address, conversations):
        super().__init__(address)
        self.conversations = conversations
        with self.connect() as line:
            self.meet(line.recv)


class Operations(TcpSocket):
    kind = "operations"
    refused = ('troupe_operations_refused_total{reason="broken"}',)
    requests = (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
                b"PUT /loglevel HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\ninfo",
                b"PUT /loglevel HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\ninfo\r\n0\r\n\r\n",
                b"PUT /loglevel HTTP/1.1\r\nHost: x\r\nContent-Length: 4294967295\r\n\r\n")

    def frames(self, chance):
        return (mutated(chance.choice(self.requests), chance),)


class Tensors(Operations):
    """The port at which other hosts fetch tensors: the frames ask for slices without a valid token."""
    kind = "tensors"
    refused = ('troupe_socket_refused_total{reason="broken_message",socket="tensors"}',)
    requests = (struct.pack("<IIQQQQQ", 0x74726663, 3, 1, 2, 3, 4, 5) + b"\0" * 32,
                struct.pack("<IIQQQQQ", 0x74726663, 3, 1, 2, 0, 2**64 - 1, 5) + b"\xff" * 32)


class Unix(Socket):
    """A socket in a run directory; `good` are messages that it understands."""

    def __init__(self, path, kind, good):
        self.path, self.kind, self.good = path, kind, good
        self.carried = open("/dev/null", "rb")  # a descriptor that the receiver has no use for
        if kind == "arena":
            self.refused = ('troupe_socket_refused_total{reason="broken_message",socket="arena"}',)

    def connect(self):
        line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        line.settimeout(10)
        line.connect(self.path)
        return line

    def frames(self, chance):
        return tuple(mutated(chance.choice(self.good), chance) or b"x" for _ in range(chance.randrange(1, 3)))

    def send(self, line, frame, chance):
        count = chance.choice((0, 0, 0, 1, 3, 16, 40))
        descriptors = array.array("i", [self.carried.fileno()] * count)
        line.sendmsg([frame], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, descriptors)] if count else [])


ARENA = (struct.pack("<IIQ", 0x74726172, 1, 7),)
MEETING = (b"?meeting-1", b"?m", b"!")


def adoptions(node):
    """Adoptions by an old daemon, which no worker accepts: node, GPU, epoch, run directory, device memory."""
    name = node.encode()
    return (b"\x0a" + bytes([len(name)]) + name + b"\x10\x00\x18\x01\x22\x04/tmp\x28\x01",
            b"\x0a" + bytes([len(name)]) + name + b"\x18\x01")


class TlsClient:
    """One handshake of TLS, whose records are made and read here, and sent and received by the caller."""

    def __init__(self, context):
        self.come, self.gone = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.come, self.gone)

    def flight(self):
        """(records to send, whether the handshake is over on this side)."""
        try:
            self.tls.do_handshake()
            return self.gone.read(), True
        except ssl.SSLWantReadError:
            return self.gone.read(), False

    def receive(self, line):
        piece = line.recv(65536)
        if not piece:
            raise ConnectionError("the other end closed the connection")
        self.come.write(piece)

    def connect(self, line):
        """The client's last flight, which is not sent yet."""
        flight, over = self.flight()
        while not over:
            line.sendall(flight)
            self.receive(line)
            flight, over = self.flight()
        return flight

    def records(self, data):
        self.tls.write(data)
        return self.gone.read()

    def read(self, line, size):
        while True:
            try:
                return self.tls.read(size)
            except ssl.SSLWantReadError:
                self.receive(line)


def tls_context(folder=None):
    """Of a client that shows the certificate in the folder, or none. Whom it speaks with, it does not check."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if folder is not None:
        context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    return context


class Tls(TcpSocket):
    """A port that speaks TLS with certificates on both sides. `stolen`: the folder of a good certificate, with which
    mutated frames come through the handshake; `foreign`: that of another authority's."""
    certificates = ('troupe_peer_connections_refused_total{reason="certificate"}',)

    def __init__(self, address, stolen, foreign):
        super().__init__(address)
        self.good, self.bad = tls_context(stolen), (tls_context(foreign), tls_context())

    def strike(self, line, chance):
        how = chance.randrange(6)
        if how == 0:  # no TLS at all
            return super().strike(line, chance)
        client = TlsClient(self.good if how > 2 else chance.choice(self.bad))
        if how == 1:  # the first flight, before anything is known of the client
            line.sendall(mutated(client.flight()[0], chance))
            return 1
        last = client.connect(line)
        if how == 2:  # a certificate that is not good, or none
            line.sendall(last)
            return 2
        if how == 3:  # a good certificate, in records that are not
            line.sendall(mutated(last, chance))
            return 2
        line.sendall(last)
        frames = self.frames(chance)
        for frame in frames:
            records = client.records(frame)
            line.sendall(mutated(records, chance) if how == 4 else records)
        return 2 + len(frames)


class TlsActor(Tls, CafPeer):
    refused = Tls.certificates + CafPeer.refused

    def __init__(self, address, stolen, foreign, conversations):
        super().__init__(address, stolen, foreign)
        self.conversations = conversations
        with self.connect() as line:  # and the stolen certificate is good
            client = TlsClient(self.good)
            line.sendall(client.connect(line))
            self.meet(lambda size: client.read(line, size))


class TlsTensors(Tls):
    kind, refused = Tensors.kind, Tensors.refused

    def frames(self, chance):
        return (mutated(chance.choice(Tensors.requests), chance),)


def listening(pid):
    """The TCP ports at which a process listens, at any address."""
    own = set(open_files(pid).values())
    ports = set()
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{table}") as lines:
            for words in map(str.split, lines):
                if words[3] == "0A" and f"socket:[{words[9]}]" in own:
                    ports.add(int(words[1].rpartition(":")[2], 16))
    return ports
