// Live updates: server-sent events, read with fetch because EventSource cannot send a token.
// A stream that ends is opened again; where streams are refused or held back, the board asks every few seconds.

import { ApiError, send } from "./api.js";

const SILENCE = 40_000; // milliseconds; the service says something every 15 s
const POLL = 5_000;
const POLLS = 24; // before a stream is tried again
const SHORTEST_PAUSE = 300;
const LONGEST_PAUSE = 8_000;

/** Calls `changed(keys or null)` when tests change (null: any), `state("live" | "polling" | "lost")`, `refused(error)`. */
export class Live {
  constructor(changed, state, refused) {
    this.changed = changed;
    this.state = state;
    this.refused = refused;
    this.running = null;
  }

  start() {
    if (this.running) return;
    this.running = new AbortController();
    this.#follow(this.running.signal);
  }

  stop() {
    this.running?.abort();
    this.running = null;
  }

  async #follow(signal) {
    let pause = SHORTEST_PAUSE;
    while (!signal.aborted) {
      try {
        await this.#read(signal, () => (pause = SHORTEST_PAUSE));
        await sleep(SHORTEST_PAUSE, signal); // the stream has ended: proxies and restarts do that
      } catch (error) {
        if (signal.aborted) return;
        const status = error instanceof ApiError ? error.status : error === SILENT ? 1 : 0;
        if (status === 401 || status === 403) return this.refused(error);
        if (status !== 0 && status !== 503) {
          await this.#poll(signal);
          continue;
        }
        this.state("lost");
        await sleep(pause, signal);
        pause = Math.min(2 * pause, LONGEST_PAUSE);
      }
    }
  }

  async #poll(signal) {
    this.state("polling");
    for (let round = 0; round < POLLS && !signal.aborted; round++) {
      this.changed(null);
      await sleep(POLL, signal);
    }
  }

  /** Reads one stream to its end. */
  async #read(outer, opened) {
    const inner = new AbortController();
    const signal = AbortSignal.any([outer, inner.signal]);
    let alarm = setTimeout(() => inner.abort(), SILENCE);
    try {
      const response = await send("v1/live", { signal });
      opened();
      this.state("live");
      this.changed(null); // whatever happened since the last stream
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let text = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        clearTimeout(alarm);
        alarm = setTimeout(() => inner.abort(), SILENCE);
        const blocks = (text + value).split("\n\n");
        text = blocks.pop();
        for (const block of blocks) this.#hear(block);
      }
    } catch (error) {
      throw inner.signal.aborted ? SILENT : error;
    } finally {
      clearTimeout(alarm);
    }
  }

  #hear(block) {
    const data = block.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
    if (!data) return;
    try {
      this.changed(Object.keys(JSON.parse(data)));
    } catch {
      this.changed(null);
    }
  }
}

const SILENT = new Error("the stream is silent: something holds it back");

function sleep(milliseconds, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}
