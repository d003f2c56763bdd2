"""Measure whether `--in-flight N` keeps N requests in flight. A server in a process of its own answers after a fixed latency; the time for
all questions after the first one (which settles what the server takes) is held against questions x latency / N, with and without bursts
of 429 (every 5 s, for 0.5 s, the server refuses everything and asks to wait 0.5 s). One core sends 1000 / (CPU milliseconds per question)
questions a second at most.

    PYTHONPATH=. python benchmarks/models/in_flight.py [--distinct]
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import multiprocessing
import os
import time
from typing import Any

REPLY = json.dumps(
    {
        "object": "chat.completion",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "A"}}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 2},
    }
).encode()
BURST_EVERY, BURST = 5.0, 0.5


def serve(latency: float, bursts: bool, port: Any, most: Any, refused: Any) -> None:
    """Answer until killed. `most`: the most requests that were in flight together."""
    now, start = 0, time.monotonic()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal now
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            now += 1
            most.value = max(most.value, now)
            if bursts and (time.monotonic() - start) % BURST_EVERY < BURST:
                refused.value += 1
                writer.write(b"HTTP/1.1 429 X\r\nRetry-After: 0.5\r\nContent-Length: 2\r\n\r\n{}")
            else:
                await asyncio.sleep(latency)
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(REPLY)
                    + REPLY
                )
            now -= 1
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def forever() -> None:
        server = await asyncio.start_server(one, "127.0.0.1", 0, backlog=4096)
        port.value = server.sockets[0].getsockname()[1]
        await server.serve_forever()

    asyncio.run(forever())


def measure(in_flight: int, latency: float, bursts: bool, images: list[bytes]) -> str:
    from eval_harness.models.http.openai_chat import OpenAIChat
    from eval_harness.models.interface import Settings
    from eval_harness.records.request import Request

    questions = max(200, min(4096, round(8 * in_flight / max(latency, 0.5))))
    port, most, refused = (multiprocessing.Value("i", 0) for _ in range(3))
    process = multiprocessing.Process(target=serve, args=(latency, bursts, port, most, refused), daemon=True)
    process.start()
    while not port.value:
        time.sleep(0.01)
    requests = (
        Request(str(i), 0, f"Question {i}?", images[i % len(images)], ("a", "b"), "single") for i in range(questions)
    )
    backend = OpenAIChat("m", Settings(base_url=f"http://127.0.0.1:{port.value}/v1", in_flight=in_flight))
    responses = backend.generate(requests)
    found = [next(responses).status]
    start, used = time.perf_counter(), time.process_time()
    found += [response.status for response in responses]
    seconds, cpu = time.perf_counter() - start, time.process_time() - used
    process.kill()
    process.join()
    assert found == ["answered"] * questions, "a question was lost"
    ideal = (questions - 1) * latency / in_flight  # while a burst lasts nothing can be answered
    words = f"in flight {in_flight:>3}, latency {latency:.1f} s: {questions:>4} questions in {seconds:5.1f} s"
    words += f" (ideal {ideal:5.1f}: {seconds / ideal:.2f} x)"
    words += f", peak {most.value:>3}, {1000 * cpu / questions:.1f} ms of our CPU per question ({cpu / seconds:.0%} of a core)"
    words += f", load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    return words + (f", {refused.value} times 429" if bursts else "")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--in-flight", type=int, nargs="+", default=[16, 64, 256])
    parser.add_argument("--latency", type=float, nargs="+", default=[0.1, 1.0])
    parser.add_argument("--distinct", action="store_true", help="each question has an image of its own")
    chosen = parser.parse_args()
    from PIL import Image

    images = []
    for _ in range(4096 if chosen.distinct else 1):
        buffer = io.BytesIO()
        Image.effect_noise((336, 336), 40).save(buffer, "JPEG")
        images.append(buffer.getvalue())
    for bursts in (False, True):
        for latency in chosen.latency:
            for in_flight in chosen.in_flight:
                print(measure(in_flight, latency, bursts, images), flush=True)


if __name__ == "__main__":
    main()
