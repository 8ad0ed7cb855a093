// The server, asked in JSON. A refusal is an error with the server's own words.

export class Refusal extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

// Of a server with tokens; kept for this tab alone.
export const token = {
  get: () => sessionStorage.getItem("turnwheel-token") ?? "",
  set: (text) => sessionStorage.setItem("turnwheel-token", text),
};

export function headers(more) {
  const known = token.get();
  return { ...(known ? { Authorization: `Bearer ${known}` } : {}), ...more };
}

export async function refusalOf(answer) {
  let detail = `the server answered ${answer.status}`;
  try {
    detail = (await answer.json()).detail ?? detail;
  } catch {
    // Not a problem in JSON: a proxy in between.
  }
  return new Refusal(answer.status, detail);
}

async function ask(method, path, body, more) {
  let answer;
  try {
    answer = await fetch(path, {
      method,
      headers: headers({ ...(body === undefined ? {} : { "Content-Type": "application/json" }), ...more }),
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch {
    throw new Refusal(0, "the server cannot be reached; is it running?");
  }
  if (!answer.ok) {
    const refusal = await refusalOf(answer);
    if (refusal.status === 401) document.dispatchEvent(new CustomEvent("token-wanted"));
    throw refusal;
  }
  if (answer.status === 204) return null;
  return answer.headers.get("content-type")?.includes("json") ? answer.json() : answer.text();
}

export const get = (path) => ask("GET", path);
export const post = (path, body) => ask("POST", path, body);
// A second press of a button under the same key does nothing again.
export const postOnce = (path, body, key) => ask("POST", path, body, { "Idempotency-Key": key });
export const remove = (path) => ask("DELETE", path);

export const at = (id, rest = "") => `api/sessions/${encodeURIComponent(id)}${rest}`;
export const unique = () => crypto.getRandomValues(new Uint32Array(3)).join("-");
