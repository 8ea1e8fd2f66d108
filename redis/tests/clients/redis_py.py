"""What redis-py makes of BF.*, in RESP2 and RESP3, by its own interface. The address of a server
with the module, and `ebbtide.bf-commands yes`, is the argument."""

import asyncio
import sys
from importlib.metadata import version

import redis
import redis.asyncio
import redis.commands.bf.info

PORT = int(sys.argv[1])


def check_all(r, protocol):
    r.flushall()
    bf = r.bf()
    assert bf.create("b", 0.01, 1000) is True
    assert bf.reserve("e", 0.01, 1000, expansion=1) is True
    assert bf.create("n", 0.01, 1000, noScale=True) is True
    assert bf.add("b", "foo") == 1
    assert bf.add("b", "foo") == 0
    assert bf.madd("b", "foo", "bar", "baz") == [0, 1, 1]
    assert bf.exists("b", "bar") == 1
    assert bf.exists("b", "noexist") == 0
    assert bf.exists("nothing", "foo") == 0
    assert bf.mexists("b", "foo", "noexist") == [1, 0]
    assert bf.insert("b", ["foo", "qux"]) == [0, 1]
    assert bf.insert("made", ["foo"], capacity=500, error=0.001) == [1]
    assert bf.insert("b", ["new"], noCreate=True) == [1]
    assert bf.card("b") == 5
    assert bf.card("nothing") == 0
    info = bf.info("b")
    if isinstance(info, dict):  # in RESP3, where it passes the map on
        info = redis.commands.bf.info.BFInfo(info)
    assert info.capacity == 1000, info.capacity
    assert info.insertedNum == 5
    assert info.filterNum == 1
    assert info.size > 1000
    assert info.expansionRate is None
    for refused in (
        lambda: bf.create("b", 0.01, 1000),
        lambda: bf.insert("nothing", ["x"], noCreate=True),
        lambda: bf.add("nothing", "x"),
        lambda: bf.info("nothing"),
        lambda: bf.scandump("b", 0),
        lambda: bf.loadchunk("b", 1, b"x"),
    ):
        try:
            refused()
        except redis.ResponseError:
            continue
        raise AssertionError("it is not refused")
    pipe = r.pipeline()
    pipe.bf().add("b", "p")
    pipe.bf().exists("b", "p")
    assert pipe.execute() == [1, 1]
    r.config_set("ebbtide.default-spec", "fingerprint window=10m fpr=0.001")
    assert bf.add("seen", "message 4711") == 1
    assert bf.add("seen", "message 4711") == 0
    assert r.execute_command("EB.CARD", "seen") == 1
    r.config_set("ebbtide.default-spec", "")
    print("redis-py", version("redis"), f"RESP{protocol}: passed")


async def check_async():
    r = redis.asyncio.Redis(port=PORT)
    assert await r.bf().add("b", "async") == 1
    assert await r.bf().exists("b", "async") == 1
    await r.aclose()


for protocol in (2, 3):
    check_all(redis.Redis(port=PORT, protocol=protocol), protocol)
    check_all(redis.Redis(port=PORT, protocol=protocol, decode_responses=True), protocol)
asyncio.run(check_async())
