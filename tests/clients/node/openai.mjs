// openai-node: chat completions and responses, streaming and not. Prints what it saw as JSON.
import { readFileSync } from "node:fs";
import OpenAI from "openai";

const [address, question, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${address}/v1`, apiKey: "none" });
const messages = [{ role: "user", content: question }];
const more = { seed: 3, cgr: { threshold: 0.9 } };

const chat = await client.chat.completions.create({ model, messages, ...more });
const streamed = { text: "", thinking: "", cgr: null };
for await (const chunk of await client.chat.completions.create({ model, messages, stream: true, ...more })) {
  streamed.text += chunk.choices[0]?.delta?.content ?? "";
  streamed.thinking += chunk.choices[0]?.delta?.reasoning_content ?? "";
  streamed.cgr = chunk.cgr ?? streamed.cgr;
}
const helped = await client.chat.completions.stream({ model, messages, ...more }).finalChatCompletion();
const response = await client.responses.create({ model, input: question, ...more });
const thinking = [];
const stream = client.responses.stream({ model, input: question, ...more });
stream.on("response.reasoning_text.delta", (event) => thinking.push(event.delta));
const final = await stream.finalResponse();
let refused = "";
try {
  await client.chat.completions.create({ model, messages, tools: [{ type: "function", function: { name: "f" } }] });
} catch (error) {
  refused = error.param;
}
const message = chat.choices[0].message;
const found = {
  version: JSON.parse(readFileSync(new URL("node_modules/openai/package.json", import.meta.url))).version,
  chat: { text: message.content, thinking: message.reasoning_content, cgr: chat.cgr },
  chat_stream: streamed,
  chat_helper: { text: helped.choices[0].message.content },
  responses: { text: response.output_text, thinking: response.output[0].content[0].text, cgr: response.cgr },
  responses_stream: { text: final.output_text ?? final.output.at(-1).content[0].text, thinking: thinking.join(""), cgr: final.cgr },
  refused,
};
console.log(JSON.stringify(found));
