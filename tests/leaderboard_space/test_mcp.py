"""Test the board's MCP server: a real client over HTTP on loopback lists the tools and
calls them.
"""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.leaderboard_space.serving import board
from tests.leaderboard_space.stores import STORE_MODELS, make_store

mcp = pytest.importorskip("mcp", reason="needs mcp (extra space)")


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("mcp")
    with board(make_store(folder / "store"), folder / "home") as (address, _):
        yield f"{address}/gradio_api/mcp/"


def asked(address: str, *calls: tuple[str, dict[str, Any]]) -> tuple[dict[str, Any], list[Any]]:
    """Return the tools by name, and the results of the calls."""

    async def talk() -> tuple[dict[str, Any], list[Any]]:
        from mcp.client.streamable_http import streamablehttp_client

        async with streamablehttp_client(address) as (read, write, _), mcp.ClientSession(read, write) as session:
            await session.initialize()
            tools = {tool.name: tool for tool in (await session.list_tools()).tools}
            return tools, [await session.call_tool(name, given) for name, given in calls]

    return asyncio.run(asyncio.wait_for(talk(), 60))


def rows(result: Any) -> Any:
    assert not result.isError, result.content
    return json.loads(result.content[0].text)


def test_an_agent_finds_the_tools_and_what_they_take(address: str) -> None:
    tools, _ = asked(address)
    assert set(tools) == {
        "question_sets",
        "leaderboard",
        "branches_of",
        "breakdown",
        "reported",
    }  # a file cannot be sent over MCP
    assert "95 % interval" in tools["leaderboard"].description
    parameters = tools["leaderboard"].inputSchema["properties"]
    assert set(parameters) == {"benchmark", "branches", "facets", "metric", "question_set", "every_run"}
    fields = [field for tool in tools.values() for field in tool.inputSchema.get("properties", {}).values()]
    assert all(field.get("description") for field in fields)


def test_an_agent_gets_the_numbers_of_a_selection(address: str) -> None:
    _, (sets,) = asked(address, ("question_sets", {}))
    phantom = next(
        question_set
        for question_set in rows(sets)
        if question_set["benchmark"] == "halt-medvqa" and question_set["kind"] == "phantom"
    )
    which = {"benchmark": "halt-medvqa", "question_set": phantom["question_set"]}
    _, (full, fake, parts, wrong) = asked(
        address,
        ("leaderboard", which),
        ("leaderboard", {**which, "branches": ["scenario: fake"]}),
        ("breakdown", {**which, "facet": "scenario", "metric": "average"}),
        ("leaderboard", {**which, "metric": "no such score"}),
    )
    assert rows(full)[0]["model"] == "baseline: oracle" and len(rows(full)) == len(STORE_MODELS)
    of_fake = {row["model"]: row["value"] for row in rows(fake)}
    assert of_fake != {row["model"]: row["value"] for row in rows(full)}
    assert of_fake == {row["model"]: row["value"] for row in rows(parts) if row["facet_value"] == "fake"}
    assert wrong.isError and "no such score" in wrong.content[0].text
