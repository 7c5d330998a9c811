// Anthropic's SDK for node: messages with thinking, streaming and not. Prints what it saw as JSON.
import { readFileSync } from "node:fs";
import Anthropic from "@anthropic-ai/sdk";

const [address, question, model] = process.argv.slice(2);
const client = new Anthropic({ baseURL: address, apiKey: "none" });
const given = {
  model,
  max_tokens: 2000,
  messages: [{ role: "user", content: question }],
  thinking: { type: "enabled", budget_tokens: 1024 },
  seed: 3,
};
const seen = (message) => ({
  text: message.content.find((block) => block.type === "text").text,
  thinking: message.content.find((block) => block.type === "thinking").thinking,
  stop_reason: message.stop_reason,
});
const message = await client.messages.create(given);
let cgr = null;
const stream = client.messages.stream(given);
stream.on("streamEvent", (event) => {
  if (event.type === "message_delta") cgr = event.cgr;
});
const final = await stream.finalMessage();
const found = {
  version: JSON.parse(readFileSync(new URL("node_modules/@anthropic-ai/sdk/package.json", import.meta.url))).version,
  messages: { ...seen(message), cgr: message.cgr },
  messages_stream: { ...seen(final), cgr },
};
console.log(JSON.stringify(found));
