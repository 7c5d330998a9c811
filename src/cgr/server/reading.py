"""From the body and headers of a request to a `Generation`, or to the decision to pass it on to the upstream."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cgr.engines.base import Sampling
from cgr.errors import CgrError, UsageError
from cgr.records import Message
from cgr.server.audit.promise import Promise
from cgr.server.config import Mode, ServeConfig
from cgr.server.conversations import ConversationRequest, Turn, from_chat
from cgr.server.faults import ApiError, bad_field, not_supported, sentence
from cgr.server.fields import check_parameters, effort_budget, given_budget, given_effort, thinks, unsupported
from cgr.server.generation import Generation
from cgr.server.protocol import CgrOptions, ChatBody, CompletionBody, SamplingFields
from cgr.server.record.key import RecordingKey
from cgr.server.wanted import Wanted, body_mode, options_from_headers, to_number
from cgr.settings import Settings

SHADOWED, RECORDED = "nothing is stopped on this server", "the reply to this request is only recorded"
ALIAS = re.compile(r"(?P<name>.+):(?:(?P<mode>plain|shadow)|cgr-(?P<threshold>[0-9.]+))")
# Requests with these are passed on to an upstream, even if they ask for probes.
FOR_UPSTREAM = frozenset({
    "tools", "functions", "tool_choice", "function_call", "response_format", "messages", "input", "system", "text",
    "prompt", "previous_response_id", "conversation", "background", "output_config", "mcp_servers", "container",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class PassOn:
    """The request goes to the upstream as it is. `model`: the upstream's name for it, where the client used an alias.
    `recorded`: the messages, if the reply goes to the recorder."""

    why: str
    model: str
    recorded: tuple[Message, ...] = ()


class RequestReader:
    """Reads requests for one model. `served`: its name; `tags`: its think tags. `promise`: of the server's calibration.
    `key`: chooses what is recorded."""

    def __init__(
        self,
        config: ServeConfig,
        served: str,
        tags: tuple[str, str],
        promise: Promise | None = None,
        key: RecordingKey | None = None,
    ) -> None:
        self.config, self.served, self.tags, self.promise, self.key = config, served, tags, promise, key

    @property
    def defaults(self) -> Settings:
        """The settings of a request that sets nothing."""
        return self.promise.settings if self.promise else self.config.settings

    # What is asked for

    def wanted(self, body: SamplingFields, headers: Mapping[str, str], *, boxed: bool) -> Wanted:
        """Body beats header beats alias beats the server's default. `boxed`: a message asks for a boxed answer. Where the
        server stops nothing any more, nothing that a request asks for is stopped."""
        return self._obeying(self._asked(body, headers, boxed=boxed))

    def _obeying(self, wanted: Wanted) -> Wanted:
        if wanted.mode == "on" and self.promise and (why := self.promise.why_not_stopping):
            return replace(wanted, mode="off", why=why)
        return wanted

    def _asked(self, body: SamplingFields, headers: Mapping[str, str], *, boxed: bool) -> Wanted:
        model, alias_mode, alias_threshold = self.alias(body.model)
        options = body.cgr if isinstance(body.cgr, CgrOptions) else CgrOptions()
        header_mode, header_options = options_from_headers(headers)
        threshold = next(
            (one for one in (options.threshold, header_options.threshold, alias_threshold) if one is not None), None
        )
        by_body = given_budget(body) is not None or given_effort(body) is not None  # in another spelling
        budget = options.budget or (None if by_body else header_options.budget)
        options = options.model_copy(update={"threshold": threshold, "budget": budget})
        mode = body_mode(body.cgr) or header_mode or alias_mode
        if mode is not None:
            return Wanted(mode, mode != "off", model, options, "the request asks for no probes" if mode == "off" else "")
        why = self._why_not(boxed)
        default: Mode = "off" if why else "shadow" if self.config.shadow else "on"
        return Wanted(default, False, model, options, why)

    def _sampled(self, wanted: Wanted, request: ConversationRequest) -> Wanted:
        """A request that only the server wants in the shadow is answered plainly. It is recorded if the key chooses it. The
        others are plain too, unless there is a promise."""
        if wanted.asked or wanted.mode != "shadow" or self.config.shadow is None or self.key is None:
            return wanted
        messages = self._recordable(wanted, request)
        if messages and self.key.chooses(messages, self.config.shadow.share):
            return replace(wanted, mode="off", why=RECORDED if self.promise else SHADOWED, recorded=messages)
        return self._obeying(replace(wanted, mode="on")) if self.promise else replace(wanted, mode="off", why=SHADOWED)

    def _recordable(self, wanted: Wanted, request: ConversationRequest) -> tuple[Message, ...]:
        if request.unsupported or wanted.model != self.served:
            return ()
        try:
            return tuple(map(self._message, request.turns))
        except ApiError:
            return ()

    def alias(self, name: str | None) -> tuple[str, Mode | None, float | None]:
        """The model behind a name, and what the name asks for."""
        if name is None:
            return self.served, None, None
        if name == self.served or (match := ALIAS.fullmatch(name)) is None:
            return name, None, None
        mode: Mode = {"plain": "off", "shadow": "shadow"}.get(match["mode"] or "", "on")  # type: ignore[assignment]
        threshold = to_number(match["threshold"], "model") if match["threshold"] else None
        if threshold is not None and not 0 <= threshold <= 1:
            raise bad_field("model", f"The threshold in {name!r} is not between 0 and 1.")
        return match["name"], mode, threshold

    def _why_not(self, boxed: bool) -> str:
        if self.config.when == "asked":
            return "the server probes only requests with a cgr field"
        return "" if boxed or self.config.when == "always" else "no message asks for a \\boxed answer"

    # Conversations

    def chat(self, body: ChatBody, headers: Mapping[str, str], request_id: str) -> Generation | PassOn:
        """A chat completion."""
        return self.converse(body, from_chat(body), headers, request_id)

    def converse(
        self,
        body: SamplingFields,
        request: ConversationRequest,
        headers: Mapping[str, str],
        request_id: str,
        missing: str = "",
    ) -> Generation | PassOn:
        """A reply to messages, of any API. `missing`: the path of this API, if the upstream does not have it."""
        wanted = self._sampled(self.wanted(body, headers, boxed=request.boxed), request)
        if (passed := self._passed(wanted, request.unsupported, missing)) is not None:
            return passed
        messages = tuple(map(self._message, request.turns))
        if not messages or not messages[-1].content.strip():
            field = request.turns[-1].field if messages else "input"
            raise bad_field(field, f"{field}: it is empty.")
        return self._generation(
            body,
            wanted,
            request_id,
            messages,
            max_tokens=request.max_tokens,
            top_logprobs=request.top_logprobs,
            thinks=thinks(body),
            shown=request.shown,
            repeated=request.repeated,
        )

    def _message(self, turn: Turn) -> Message:
        """A message as the chat template takes it. Think tags in it would be read as thinking."""
        field, text = turn.field, turn.text
        opening, closing = self.tags
        if turn.role == "assistant" and text.lstrip().startswith(opening) and closing in text:
            text = text.split(closing, 1)[1]  # earlier thinking is not part of the conversation
        for tag in self.tags:
            if tag in text:
                raise bad_field(field, f"{field} holds the think tag {tag!r}, which only the model may write.")
        return Message("system" if turn.role == "developer" else turn.role, text)  # type: ignore[arg-type]

    # Completions

    def completion(self, body: CompletionBody, headers: Mapping[str, str], request_id: str) -> Generation | PassOn:
        """A completion of a prompt. It is probed only if it asks for that."""
        wanted = self.wanted(body, headers, boxed=True)  # without a box, too, that is not why it is not probed
        if not wanted.asked:
            why = wanted.why or "completions are probed only if they ask for it"
            wanted = replace(wanted, mode="off", why=why)
        found = unsupported(body, body.model_extra or {}) + (["logprobs"] if body.logprobs is not None else [])
        if (passed := self._passed(wanted, found)) is not None:
            return passed
        prompt: Any = body.prompt
        if not isinstance(prompt, str) and not (prompt and all(type(one) is int and one >= 0 for one in prompt)):
            raise bad_field("prompt", "prompt: one text or one list of token ids is supported.")
        if not prompt:
            raise bad_field("prompt", "prompt: it is empty.")
        return self._generation(body, wanted, request_id, prompt, max_tokens=body.max_tokens, raw=True)

    # Both

    def _passed(self, wanted: Wanted, found: Sequence[str], missing: str = "") -> PassOn | None:
        """Whether to pass the request on. Without an upstream, what is not supported is an error. `missing`: a path that
        the upstream does not have, so that nothing can be passed on to it."""
        if not self.config.gateway or missing:
            if wanted.model != self.served:
                raise ApiError(
                    404, f"There is no model {wanted.model!r}; this is {self.served!r}.", "model", "model_not_found"
                )
            if found:
                raise not_supported(found[0], f"here, and the upstream has no {missing}" if missing else "by this model")
            return None
        if wanted.model != self.served:
            return PassOn(f"{wanted.model!r} is not the model that is probed", wanted.model)
        if wanted.mode == "off":
            return PassOn(wanted.why, wanted.model, wanted.recorded)
        if found and wanted.asked and re.split(r"[.\[]", found[0])[0] not in FOR_UPSTREAM:
            raise not_supported(found[0], "together with probes")
        return PassOn(f"{found[0]!r} is not supported together with probes", wanted.model) if found else None

    def _generation(self, body: SamplingFields, wanted: Wanted, request_id: str, prompt: Any, **more: Any) -> Generation:
        options, config = wanted.options, self.config
        style = options.answer_style or config.answer_style
        top = more.get("top_logprobs")
        if body.stream_options and not body.stream:
            raise bad_field("stream_options", "stream_options: it is only for streams.")
        if style == "boxed" and top is not None and wanted.mode != "off":
            raise not_supported("logprobs", "with answer_style 'boxed'")
        settings = self._settings(body, options)
        return Generation(
            id=request_id,
            model=body.model or self.served,
            prompt=prompt,
            settings=settings,
            sampling=_sampling(body, settings, top),
            mode="shadow" if options.shadow and wanted.mode == "on" else wanted.mode,
            style="full" if wanted.mode == "off" else style,
            wrap_up=config.wrap_up if options.wrap_up is None else options.wrap_up,
            sentence_end=config.sentence_end if options.sentence_end is None else options.sentence_end,
            stream=bool(body.stream),
            include_usage=bool(body.stream_options and body.stream_options.include_usage),
            stream_probes=config.stream_probes if options.stream_probes is None else options.stream_probes,
            detail=wanted.why,
            recorded=bool(wanted.recorded),
            **more,
        )

    def _settings(self, body: SamplingFields, options: CgrOptions) -> Settings:
        """The server's settings with what the request changes."""
        reply_fields = {"shadow", "stream_probes", "answer_style", "wrap_up", "sentence_end"}
        changes: dict[str, Any] = options.model_dump(exclude_none=True, exclude=reply_fields)
        if (budget := options.budget or given_budget(body) or effort_budget(body)) is not None:
            changes["budget"] = budget
        for name in ("temperature", "top_p"):
            if (value := getattr(body, name)) is not None:
                changes[name] = value
        changes["seed"] = secrets.randbits(31) if body.seed is None else body.seed
        defaults = self.defaults
        if changes.get("rule") not in (None, defaults.rule):
            changes.setdefault("parameters", {})
        check_parameters(changes.get("rule", defaults.rule), options.parameters or {})
        try:
            return replace(defaults, **changes)
        except UsageError as error:
            raise _blamed(error, changes) from error


def _blamed(error: CgrError, changes: Mapping[str, Any]) -> ApiError:
    """The error of the settings, with the field that it is about."""
    known = [name for name in changes if name in error.message or name.replace("_", "-") in error.message]
    named = any(repr(name) in error.message for name in changes.get("parameters", ()))
    names = ["parameters"] if named or "parameter of" in error.message else known
    field = f"cgr.{names[0]}" if names else "cgr"
    return bad_field(field, f"{field}: {sentence(error)}")


def _sampling(body: SamplingFields, settings: Settings, top: int | None) -> Sampling:
    stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or getattr(body, "stop_sequences", None) or ())
    return replace(
        settings.sampling(),
        top_k=max(body.top_k or 0, 0),
        min_p=body.min_p or 0.0,
        presence_penalty=body.presence_penalty or 0.0,
        frequency_penalty=body.frequency_penalty or 0.0,
        repetition_penalty=1.0 if body.repetition_penalty is None else body.repetition_penalty,
        stop=stop,
        answer_top=None if top is None else max(top, 1),
    )
