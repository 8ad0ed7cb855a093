// Shows the document in Swagger UI.

// A stream does not end by itself, and Swagger UI shows an answer when it is whole.
const STREAM_SHOWN_MS = 5_000;
const STREAM = "text/event-stream";

async function fetchWithin(url, request) {
  const abort = new AbortController();
  const answer = await fetch(url, { ...request, signal: abort.signal });
  if (!answer.headers.get("content-type")?.startsWith(STREAM)) return answer;
  const timer = setTimeout(() => abort.abort(), STREAM_SHOWN_MS);
  const text = await textSoFar(answer.body.pipeThrough(new TextDecoderStream()).getReader());
  clearTimeout(timer);
  const { status, statusText, headers } = answer;
  const shown = new Response(text, { status, statusText, headers });
  Object.defineProperty(shown, "url", { value: answer.url });
  return shown;
}

async function textSoFar(reader) {
  let text = "";
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) text += part.value;
  } catch (error) {
    // The time is over.
    if (error.name !== "AbortError") throw error;
  }
  return text;
}

const dark = matchMedia("(prefers-color-scheme: dark)");
const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", follow);
follow();

SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#operations",
  deepLinking: true,
  displayRequestDuration: true,
  docExpansion: "list",
  defaultModelsExpandDepth: 0,
  tryItOutEnabled: true,
  // No other server is asked.
  validatorUrl: null,
  requestInterceptor: (request) => Object.assign(request, { userFetch: fetchWithin }),
});
