// Requests to the service, with the token that was entered once. It is kept for this tab only.

const PLACE = "gradband-token";
const SLOWEST = 20_000; // milliseconds until a request is given up

/** What the service refused, or the network lost (status 0). */
export class ApiError extends Error {
  constructor(status, message, retryAfter = 0) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

export const token = {
  read: () => sessionStorage.getItem(PLACE),
  keep: (text) => sessionStorage.setItem(PLACE, text),
  forget: () => sessionStorage.removeItem(PLACE),
};

/** The response to a request, if it succeeded. `path` is relative, so a prefix of a proxy does no harm. */
export async function send(path, { method = "GET", body, signal, text = token.read() } = {}) {
  const headers = { Authorization: `Bearer ${text}` };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method, headers, signal, body: body && JSON.stringify(body), cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The service does not answer.");
  }
  if (response.ok) return response;
  const told = await response.json().catch(() => ({}));
  throw new ApiError(
    response.status,
    sentence(told.error ?? `The service answered with status ${response.status}.`),
    Number(response.headers.get("Retry-After")) || 0,
  );
}

/** What a request returns as JSON. */
export async function ask(path, options = {}) {
  const response = await send(path, { signal: AbortSignal.timeout(SLOWEST), ...options }).catch((error) => {
    throw error instanceof ApiError ? error : new ApiError(0, "The service did not answer in time.");
  });
  return response.json();
}

export const change = (path, body) => ask(path, { method: "POST", body });

export const pathOf = (key) => `v1/tests/${encodeURIComponent(key)}`;

function sentence(text) {
  const full = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?…]$/.test(full) ? full : `${full}.`;
}
