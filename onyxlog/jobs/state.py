"""State of one window of a task on one worker: one accumulated value for each extent of each group.

Segments, times and the end of the input go in, firings of triggers come out; a snapshot is bytes. How
segments are cut into batches makes no difference. There is no clock: timers are told the time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, Final

from onyxlog.errors import EntryError, OnyxlogError
from onyxlog.jobs.aggregates import Aggregate, aggregate
from onyxlog.jobs.grouping import Grouping, bucket_of, key_bytes
from onyxlog.jobs.plain import to_plain
from onyxlog.jobs.predicates import Test, decider
from onyxlog.jobs.segments import Segment, canonical, decoded
from onyxlog.jobs.triggers import Cause, Evict, Firing, Punctuation, Segments, Timer, Trigger, Watermark
from onyxlog.jobs.windows import EVERYTHING, Extent, Global, Session, Window, joined

FORMAT: Final = 1
GroupId = str | bytes
"""A key as it is used in dictionaries: strings unchanged, all others as `key_bytes`."""


class WindowFullError(OnyxlogError):
    """A window holds as many extents as it may."""


class _Cell:
    """An extent of a group. `told[i]`: how many of its `added` segments there were when trigger i fired."""

    __slots__ = ("added", "told", "value")

    def __init__(self, value: Any, added: int, told: list[int]) -> None:
        self.value, self.added, self.told = value, added, told


class _Group:
    """A group. `order`: the extents sorted, for sessions only."""

    __slots__ = ("cells", "id", "key", "order")

    def __init__(self, group_id: GroupId, key: Any) -> None:
        self.id = group_id
        self.key = key
        self.cells: dict[Extent, _Cell] = {}
        self.order: list[Extent] = []


class _Moment:
    """Moment in which triggers fire, in order, and the extents that are gone once all have seen it."""

    __slots__ = ("firings", "gone")

    def __init__(self, firings: list[Firing] | None = None) -> None:
        """Begin with the `firings` of moments before."""
        self.firings: list[Firing] = [] if firings is None else firings
        self.gone: set[tuple[GroupId, Extent]] = set()


class WindowState:
    """The state of one window; the module's docstring describes it. It is not safe for several threads."""

    def __init__(
        self, window: Window, triggers: Sequence[Trigger], grouping: Grouping | None, where: str = "window"
    ) -> None:
        """Begin empty.

        Raises:
            WorkflowError: a function of the window or its triggers cannot be found.
        """
        self.window = window
        self.triggers = tuple(triggers)
        self._grouping = grouping
        self._aggregate: Aggregate = aggregate(window.aggregation, f"{where}: aggregation")
        self._groups: dict[GroupId, _Group] = {}
        self._count = 0
        self._time: int | None = None
        """The latest time that was seen."""
        self._due: list[tuple[int, int, GroupId, Extent, int]] = []
        """When watermark triggers fire:

        (time, serial number, group, extent as it was, trigger). An extent may be gone.
        """
        self._serial = 0
        self._timers: dict[int, int] = {}
        """When timer triggers fire next, ms."""
        on = list(enumerate(trigger.on for trigger in self.triggers))
        self._by_count = [(i, rule.count) for i, rule in on if isinstance(rule, Segments)]
        self._by_predicate: list[tuple[int, Test]] = [
            (i, decider(rule.predicate, f"{where}: trigger {self.triggers[i].id}: predicate"))
            for i, rule in on
            if isinstance(rule, Punctuation)
        ]
        self._by_time = [(i, rule) for i, rule in on if isinstance(rule, Watermark)]
        self._by_clock = [(i, rule.period_ms) for i, rule in on if isinstance(rule, Timer)]
        self._fires_early = any(rule.percent < 100 for _, rule in self._by_time)
        self._timeless = isinstance(window.over, Global) and window.time_key is None
        self._session = isinstance(window.over, Session)

    def __len__(self) -> int:
        """Return how many extents the window holds, of all groups."""
        return self._count

    def apply(self, segments: Iterable[Segment]) -> list[Firing]:
        """Take segments in; return what fires because of them, in order.

        Raises:
            ValueError: a segment has no time where the window says.
            WindowFullError: the window is full.
        """
        firings: list[Firing] = []
        for segment in segments:
            self._apply(segment, firings)
        return firings

    def tick(self, now_ms: int) -> list[Firing]:
        """Set the clock to `now_ms`; return what timers fire. A timer begins to run at the first tick."""
        moment = _Moment()
        for i, period_ms in self._by_clock:
            due = self._timers.setdefault(i, now_ms + period_ms)
            if now_ms >= due:
                self._timers[i] = now_ms + period_ms
                self._fire_all(i, Cause.TIMER, moment)
        self._evict(moment)
        return moment.firings

    def complete(self) -> list[Firing]:
        """Note that there will be no more segments; return what has not been told, by triggers that are to tell it."""
        moment = _Moment()
        for i, trigger in enumerate(self.triggers):
            if trigger.on_complete:
                self._fire_all(i, Cause.COMPLETE, moment)
        self._evict(moment)
        return moment.firings

    def _apply(self, segment: Segment, firings: list[Firing]) -> None:
        window = self.window
        time = 0 if self._timeless else window.time_of(segment)
        key = None if self._grouping is None else self._grouping.key(segment)
        group_id: GroupId = key if type(key) is str else key_bytes(key)
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = _Group(group_id, key)
        extents = window.over.extents(time)
        if self._session:
            extents = (self._join(group, extents[0]),)
        for extent in extents:
            cell = group.cells.get(extent)
            if cell is None:
                cell = self._new_cell(group, extent)
            cell.value = self._aggregate.add(cell.value, segment)
            cell.added += 1
        # A segment that is not late fires no watermark for its own extents, unless they are told before their end.
        late = self._time is not None and (time < self._time or self._fires_early)
        if late or self._by_count or self._by_predicate:
            self._fire_for(segment, group, extents, firings)
        if not self._timeless:
            self._advance(time, firings)

    def _fire_for(
        self, segment: Segment, group: _Group, extents: tuple[Extent, ...], firings: list[Firing]
    ) -> None:
        """Fire what a segment that came to these extents fires."""
        moment = _Moment(firings)
        for i, count in self._by_count:
            for extent in extents:
                cell = group.cells[extent]
                if cell.added - cell.told[i] >= count:
                    self._fire_group(i, group, extent, Cause.SEGMENTS, moment)
        for i, holds in self._by_predicate:
            if holds(segment):
                for extent in extents:
                    self._fire_group(i, group, extent, Cause.PUNCTUATION, moment)
        if self._time is not None:
            for i, rule in self._by_time:
                for extent in extents:
                    if rule.due(extent) + rule.delay_ms <= self._time:  # the segment came late
                        self._fire_group(i, group, extent, Cause.WATERMARK, moment)
        self._evict(moment)

    def _fire_group(self, i: int, group: _Group, extent: Extent, cause: Cause, moment: _Moment) -> None:
        """Fire for an extent, and with it for all others of its group if the trigger says so."""
        for each in sorted(group.cells) if self.triggers[i].fire_all_extents else (extent,):
            self._fire(i, group, each, cause, moment)

    def _fire(self, i: int, group: _Group, extent: Extent, cause: Cause, moment: _Moment) -> None:
        cell, trigger = group.cells[extent], self.triggers[i]
        if cell.added == cell.told[i]:
            return
        cell.told[i] = cell.added
        result = self._aggregate.result(cell.value)
        moment.firings.append(Firing(self.window.id, trigger.id, group.key, extent, result, cause))
        if trigger.evict is Evict.ALL:
            moment.gone.add((group.id, extent))

    def _fire_all(self, i: int, cause: Cause, moment: _Moment) -> None:
        """Fire for all groups, in an order that depends on the content, not on how it came."""
        for group in self._sorted():
            for extent in sorted(group.cells):
                self._fire(i, group, extent, cause, moment)

    def _evict(self, moment: _Moment) -> None:
        for group_id, extent in moment.gone:
            group = self._groups[group_id]
            del group.cells[extent]
            self._count -= 1
            if self._session:
                group.order.remove(extent)
            if not group.cells:
                del self._groups[group_id]

    def _sorted(self) -> list[_Group]:
        return sorted(self._groups.values(), key=lambda group: key_bytes(group.key))

    def _advance(self, time: int, firings: list[Firing]) -> None:
        """Advance the time to that of a segment, of whatever group, and fire watermarks."""
        if self._time is not None and time <= self._time:
            return
        self._time = time
        moment = _Moment(firings)
        while self._due and self._due[0][0] <= time:
            _, _, group_id, extent, i = heappop(self._due)
            group = self._groups.get(group_id)
            if group is None or (now := self._extent_now(group, extent)) is None:
                continue
            if self._due_at(i, now) > time:
                self._push(group, now, i)  # the session continued
            else:
                self._fire_group(i, group, now, Cause.WATERMARK, moment)
        self._evict(moment)

    def _extent_now(self, group: _Group, extent: Extent) -> Extent | None:
        """Return the extent, or the session that it became part of."""
        if not self._session:
            return extent if extent in group.cells else None
        index = bisect_right(group.order, extent.start, key=lambda each: each.start) - 1
        if index >= 0 and group.order[index].end > extent.start:
            return group.order[index]
        return None

    def _due_at(self, i: int, extent: Extent) -> int:
        rule = self.triggers[i].on
        assert isinstance(rule, Watermark)
        return rule.due(extent) + rule.delay_ms

    def _push(self, group: _Group, extent: Extent, i: int) -> None:
        self._serial += 1
        heappush(self._due, (self._due_at(i, extent), self._serial, group.id, extent, i))

    def _new_cell(self, group: _Group, extent: Extent) -> _Cell:
        if self._count >= self.window.extents_max:
            raise WindowFullError(
                f"window {self.window.id!r} of task {self.window.task!r} holds {self._count} extents, and may hold no "
                f"more on one worker: let a trigger evict what it told, use more workers, or raise the window's "
                f"extents_max"
            )
        self._count += 1
        cell = group.cells[extent] = _Cell(self._aggregate.initial(), 0, [0] * len(self.triggers))
        if extent != EVERYTHING:
            for i, rule in self._by_time:
                if self._time is None or rule.due(extent) + rule.delay_ms > self._time:
                    self._push(group, extent, i)
        return cell

    def _join(self, group: _Group, extent: Extent) -> Extent:
        """Return the session that a segment belongs to; sessions that it connects become one."""
        now = joined(group.order, extent)
        if not now.absorbed:
            group.order.insert(bisect_right(group.order, extent), extent)
        elif now.absorbed != (now.extent,):
            first, *others = now.absorbed
            cell = group.cells.pop(first)
            for other in others:
                more = group.cells.pop(other)
                cell.value = self._aggregate.merge(cell.value, more.value)
                cell.added += more.added
                cell.told = [a + b for a, b in zip(cell.told, more.told, strict=True)]
            self._count -= len(others)
            group.cells[now.extent] = cell
            index = group.order.index(first)
            group.order[index : index + len(now.absorbed)] = [now.extent]
        return now.extent

    def values(self) -> Iterator[tuple[Any, Extent, Any]]:
        """Return (group's key, extent, result) of all that the window holds, in order."""
        for group in self._sorted():
            for extent in sorted(group.cells):
                yield group.key, extent, self._aggregate.result(group.cells[extent].value)

    def snapshot(self) -> bytes:
        """Return all that the window holds; equal states have equal bytes.

        Clocks of timers are not in it: they start anew.
        """
        groups = [
            [
                group.key,
                [
                    [*extent, cell.value, cell.added, cell.told]
                    for extent, cell in sorted(group.cells.items(), key=lambda item: item[0])
                ],
            ]
            for group in self._sorted()
        ]
        header = [FORMAT, self.window.id, self._meaning()]
        return canonical([*header, [trigger.id for trigger in self.triggers], self._time, groups])

    def _meaning(self) -> list[Any]:
        """Return what the values in a snapshot depend on.

        In another window of this name they would mean something else.
        """
        return [to_plain(self.window.over), to_plain(self.window.aggregation), self.window.time_key]

    def restore(self, snapshots: Iterable[bytes], mine: Callable[[int], bool] = lambda _: True) -> None:
        """Begin from the snapshots of workers, from which this one takes the groups in buckets that are `mine`.

        Where several held the same extent of the same group, as they do without grouping, it is merged.

        Raises:
            EntryError: a snapshot is not of this window.
        """
        assert not self._groups, "a window is restored before anything comes to it"
        for snapshot in snapshots:
            try:
                version, window, meaning, trigger_ids, time, groups = decoded(snapshot)
                if version != FORMAT or window != self.window.id:
                    raise ValueError(f"it is of window {window!r} in format {version!r}")
                if meaning != self._meaning():
                    raise ValueError(
                        f"it is over {meaning}, now it is over {self._meaning()}; use another id for it"
                    )
                if time is not None:
                    self._time = time if self._time is None else max(self._time, time)
                for key, cells in groups:
                    if mine(bucket_of(key)):
                        self._take(key, cells, trigger_ids)
            except (ValueError, TypeError) as error:
                raise EntryError(
                    f"the checkpoint of window {self.window.id!r} of task {self.window.task!r} cannot be read: {error}"
                ) from error
        self._due = []
        for group in self._sorted():
            for extent in sorted(group.cells):
                for i, _ in self._by_time:
                    if extent != EVERYTHING:
                        self._push(group, extent, i)
        heapify(self._due)

    def _take(self, key: Any, cells: list[list[Any]], trigger_ids: list[str]) -> None:
        group_id: GroupId = key if type(key) is str else key_bytes(key)
        group = self._groups.setdefault(group_id, _Group(group_id, key))
        for start, end, value, added, told in cells:
            extent = Extent(start, end)
            by_id = dict(zip(trigger_ids, told, strict=True))
            told_now = [by_id.get(trigger.id, 0) for trigger in self.triggers]
            if self._session:
                extent = self._join(group, extent)
            cell = group.cells.get(extent)
            if cell is None:
                cell = self._new_cell(group, extent)
                cell.value, cell.added, cell.told = value, added, told_now
            else:
                cell.value = self._aggregate.merge(cell.value, value)
                cell.added += added
                cell.told = [a + b for a, b in zip(cell.told, told_now, strict=True)]
