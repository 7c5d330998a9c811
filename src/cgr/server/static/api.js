// The API of this server: requests with the key, and the chunks of a streamed reply.

const KEY_NAME = "cgr-key";

class ApiFailure extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

function storedKey() {
  return sessionStorage.getItem(KEY_NAME) ?? "";
}

function storeKey(key) {
  if (key) sessionStorage.setItem(KEY_NAME, key);
  else sessionStorage.removeItem(KEY_NAME);
}

async function request(path, options = {}) {
  const key = storedKey(),
    headers = { ...options.headers, ...(key ? { authorization: `Bearer ${key}` } : {}) };
  let reply;
  try {
    reply = await fetch(path, { ...options, headers, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiFailure("The server cannot be reached.", 0);
  }
  if (!reply.ok) throw new ApiFailure(await failureText(reply), reply.status);
  return reply;
}

async function failureText(reply) {
  try {
    return (await reply.json()).error.message;
  } catch {
    return `The server replied with status ${reply.status}.`;
  }
}

// Sends a chat completion and calls `onChunk` with each chunk. It returns when the reply is complete.
async function streamChat(body, onChunk, signal) {
  const reply = await request("/v1/chat/completions", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ ...body, stream: true }),
    signal,
  });
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  const events = new EventSplitter();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new ApiFailure("The reply ended before it was complete.", 0);
    for (const data of events.feed(value)) {
      if (data === "[DONE]") return;
      const chunk = parsed(data);
      if (chunk.error) throw new ApiFailure(chunk.error.message, 0);
      onChunk(chunk);
    }
  }
}

function parsed(data) {
  try {
    return JSON.parse(data);
  } catch {
    throw new ApiFailure("A part of the reply is not JSON.", 0);
  }
}

// Server-sent events to their data. Comments, such as pings, have none. A line may end with CR LF.
class EventSplitter {
  constructor() {
    this.rest = "";
  }

  feed(text) {
    const events = (this.rest + text.replaceAll("\r", "")).split("\n\n");
    this.rest = events.pop();
    return events
      .map((event) => event.split("\n").filter((line) => line.startsWith("data:")))
      .filter((lines) => lines.length)
      .map((lines) => lines.map((line) => line.slice(5).trimStart()).join("\n"));
  }
}
