// Judges of others for streams: each line of stdin is a case, each line of stdout what it came to.
import { createInterface } from "node:readline";
import { AbstractAgent, verifyEvents } from "@ag-ui/client";
import { readUIMessageStream, uiMessageChunkSchema, validateUIMessages } from "ai";
import { from, lastValueFrom, toArray } from "rxjs";

class Replayed extends AbstractAgent {
  constructor(events, messages) {
    super({ threadId: "s", initialMessages: messages });
    this.events = events;
  }
  run() {
    return from(this.events);
  }
}

async function agUi({ runs }) {
  // The whole stream, as a verifier has it; and run by run, as a client has it.
  await lastValueFrom(from(runs.flat()).pipe(verifyEvents(), toArray()));
  let messages = [];
  for (const events of runs) {
    const agent = new Replayed(events, messages);
    const failed = events.at(-1).type === "RUN_ERROR";
    try {
      await agent.runAgent({});
    } catch (error) {
      if (!failed) throw error;
    }
    messages = agent.messages;
  }
  return messages;
}

async function uiMessages({ runs }) {
  const schema = await uiMessageChunkSchema();
  let message;
  const messages = [];
  for (const chunks of runs) {
    for (const chunk of chunks) {
      const judged = await schema.validate(chunk);
      if (!judged.success) throw judged.error;
    }
    if (message && message.id !== chunks[0].messageId) message = undefined;
    const stream = new ReadableStream({
      start(controller) {
        for (const chunk of chunks) controller.enqueue(chunk);
        controller.close();
      },
    });
    const failed = chunks.some(chunk => chunk.type === "error");
    for await (const next of readUIMessageStream({ message, stream, terminateOnError: !failed })) message = next;
    if (message === undefined) continue;
    if (messages.at(-1)?.id === message.id) messages.pop();
    messages.push(message);
  }
  const shown = messages.filter(one => one.parts.length > 0);
  if (shown.length > 0) await validateUIMessages({ messages: shown });
  return messages;
}

const judges = { "ag-ui": agUi, "ui-messages": uiMessages };
for await (const line of createInterface({ input: process.stdin })) {
  const one = JSON.parse(line);
  try {
    console.log(JSON.stringify({ messages: await judges[one.vocabulary](one) }));
  } catch (error) {
    console.log(JSON.stringify({ error: String(error?.stack ?? error) }));
  }
}
