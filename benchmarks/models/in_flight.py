"""Measure whether `--in-flight N` really keeps N requests in flight.

A server in its own process answers after a fixed latency. The time for all questions but the first
(which settles the parameters that the server accepts) is compared with questions x latency / N. The
client's CPU time is a second limit: one core sends at most 1000 / (CPU milliseconds per question)
questions per second.

    PYTHONPATH=. python benchmarks/models/in_flight.py
"""

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


def serve(latency: float, port: Any, max_concurrent: Any) -> None:
    """Answer requests until killed.

    Args:
        latency: Seconds until an answer.
        port: Shared integer that receives the port.
        max_concurrent: Shared integer that receives the largest number of concurrent requests.
    """
    concurrent = 0

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal concurrent
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
            # Read the whole body, as a real server would: the images are most of a request.
            await reader.readexactly(length)
            concurrent += 1
            max_concurrent.value = max(max_concurrent.value, concurrent)
            await asyncio.sleep(latency)
            head_of_reply = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(
                REPLY
            )
            writer.write(head_of_reply + REPLY)
            concurrent -= 1
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def forever() -> None:
        # The backlog exceeds any N, so that no connection waits for the kernel.
        server = await asyncio.start_server(one, "127.0.0.1", 0, backlog=4096)
        port.value = server.sockets[0].getsockname()[1]
        await server.serve_forever()

    asyncio.run(forever())


def measure(in_flight: int, latency: float, image: bytes) -> str:
    """Return a line with the time for all questions, compared with the ideal time."""
    from eval_harness.models.http.openai_chat import OpenAIChat
    from eval_harness.models.interface import Settings
    from eval_harness.records.request import Request

    # About eight rounds of N requests, but never so few that the start dominates.
    questions = max(200, min(4096, round(8 * in_flight / max(latency, 0.5))))
    port, max_concurrent = (multiprocessing.Value("i", 0) for _ in range(2))
    process = multiprocessing.Process(target=serve, args=(latency, port, max_concurrent), daemon=True)
    process.start()
    while not port.value:
        time.sleep(0.01)
    requests = (Request(str(i), 0, f"Question {i}?", image, ("a", "b"), "single") for i in range(questions))
    backend = OpenAIChat("m", Settings(base_url=f"http://127.0.0.1:{port.value}/v1", in_flight=in_flight))
    responses = backend.generate(requests)
    # The first question alone negotiates the parameters; the time starts after it.
    statuses = [next(responses).status]
    start, cpu_start = time.perf_counter(), time.process_time()
    statuses += [response.status for response in responses]
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu_start
    process.kill()
    process.join()
    assert statuses == ["answered"] * questions, "a question was lost"
    ideal = (questions - 1) * latency / in_flight
    words = f"in flight {in_flight:>3}, latency {latency:.1f} s: {questions:>4} questions in {seconds:5.1f} s"
    words += f" (ideal {ideal:5.1f}: {seconds / ideal:.2f} x)"
    words += f", peak {max_concurrent.value:>3}, {1000 * cpu / questions:.1f} ms of our CPU per question ({cpu / seconds:.0%} of a core)"
    return words + f", load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--in-flight", type=int, nargs="+", default=[16, 64, 256])
    parser.add_argument("--latency", type=float, nargs="+", default=[0.1, 1.0])
    chosen = parser.parse_args()
    from PIL import Image

    buffer = io.BytesIO()
    Image.effect_noise((336, 336), 40).save(buffer, "JPEG")
    for latency in chosen.latency:
        for in_flight in chosen.in_flight:
            print(measure(in_flight, latency, buffer.getvalue()), flush=True)


if __name__ == "__main__":
    main()
