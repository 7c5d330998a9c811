// Vercel's `ai` with `@ai-sdk/openai-compatible`, streaming and not. Prints what it saw as JSON.
import { readFileSync } from "node:fs";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";

const [address, question, model] = process.argv.slice(2);
const results = [];
const cgr = createOpenAICompatible({
  name: "cgr",
  baseURL: `${address}/v1`,
  includeUsage: true,
  // The result object, as `providerMetadata.cgr.result`.
  metadataExtractor: {
    extractMetadata: async ({ parsedBody }) => ({ cgr: { result: parsedBody.cgr } }),
    createStreamExtractor: () => {
      let result = null;
      return {
        processChunk: (chunk) => (result = chunk?.cgr?.object === "cgr.result" ? chunk.cgr : result),
        buildMetadata: () => ({ cgr: { result } }),
      };
    },
  },
});
const version = (name) => JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url))).version;
// Fields of the request that the library does not know are provider options.
const given = { model: cgr(model), prompt: question, seed: 3, providerOptions: { cgr: { cgr: { threshold: 0.9 } } } };

const whole = await generateText(given);
const stream = streamText(given);
let thinking = "";
let text = "";
for await (const part of stream.fullStream) {
  if (part.type === "reasoning-delta") thinking += part.text;
  if (part.type === "text-delta") text += part.text;
  if (part.type === "error") results.push(String(part.error));
}
console.log(
  JSON.stringify({
    versions: { ai: version("ai"), "@ai-sdk/openai-compatible": version("@ai-sdk/openai-compatible") },
    whole: { text: whole.text, thinking: whole.reasoningText, cgr: whole.providerMetadata?.cgr?.result },
    stream: { text, thinking, cgr: (await stream.providerMetadata)?.cgr?.result },
    reasoning_tokens: (await stream.usage).reasoningTokens ?? (await stream.usage).outputTokenDetails?.reasoningTokens,
    errors: results,
  }),
);
