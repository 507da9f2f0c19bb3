// A plain page without a build step: counters, the last matches, forms to subscribe and to publish.
// Whatever comes from messages is only ever put into text nodes.

const MAX_MATCHES = 50;
const COUNTERS = {
  nearcast_messages_published_total: "Messages published",
  nearcast_matches_total: "Matches",
  nearcast_events_delivered_total: "Events delivered",
  nearcast_subscriptions: "Subscriptions",
  nearcast_streams: "Connected streams",
};

const $ = (selector) => document.querySelector(selector);
const numbers = new Intl.NumberFormat();
let key = sessionStorage.getItem("key") ?? "";
let running = null;

function request(path, options = {}) {
  const headers = { ...options.headers, Authorization: `Bearer ${key}` };
  return fetch(path, { ...options, headers });
}

async function send(form, path, body) {
  const answer = form.querySelector(".answer");
  answer.className = "answer";
  if (!key) return fail(answer, "Sign in first.");
  try {
    const headers = { "Content-Type": "application/json" };
    const response = await request(path, { method: "POST", headers, body: JSON.stringify(body) });
    const document = await response.json();
    if (!response.ok) return fail(answer, document.detail);
    return document;
  } catch {
    return fail(answer, "The server cannot be reached.");
  }
}

function fail(element, text) {
  element.textContent = text;
  element.classList.add("error");
  return null;
}

function fields(form) {
  return Object.fromEntries(new FormData(form));
}

$("#sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  key = fields(event.target).key.trim();
  sessionStorage.setItem("key", key);
  follow();
});

$("#subscribe").addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = event.target;
  const { expression, lat, lon, radius } = fields(form);
  const center = { latitude: Number(lat), longitude: Number(lon) };
  const region = { areaType: "CIRCLE", center, radius: Number(radius) * 1000 };
  const config = { subscriptionDetail: { expression, region } };
  const made = await send(form, "/v1/subscriptions", { config });
  if (made) form.querySelector(".answer").textContent = `Subscribed: ${made.id}.`;
});

$("#publish").addEventListener("submit", async (event) => {
  event.preventDefault();
  const form = event.target;
  const { text, lat, lon } = fields(form);
  const message = { text, lat: Number(lat), lon: Number(lon) };
  const done = await send(form, "/v1/messages", message);
  if (!done) return;
  const [rejected] = done.rejected;
  const answer = form.querySelector(".answer");
  if (rejected) fail(answer, `${rejected.field} ${rejected.reason}`);
  else answer.textContent = `Published as ${done.firstId}.`;
});

function show(event) {
  const { message, matches, subscriptionId } = event.data;
  const item = document.createElement("li");
  const about = document.createElement("small");
  const time = new Date(event.time).toLocaleTimeString();
  const what = event.type.replace("org.nearcast.", "");
  if (message) {
    item.textContent = message.text ?? (message.tokens ?? []).join(" ");
    const scored = ({ subscriptionId, score }) => subscriptionId + (score === undefined ? "" : ` (${score.toFixed(2)})`);
    about.textContent = `${time} · ${what} · ${matches.map(scored).join(", ")}`;
  } else {
    item.textContent = subscriptionId;
    about.textContent = `${time} · ${what}`;
  }
  item.append(about);
  $("#matches").prepend(item);
  while ($("#matches").childElementCount > MAX_MATCHES) $("#matches").lastElementChild.remove();
}

// Server-sent events by fetch, because EventSource cannot send a key. It resumes after the last id.
async function follow() {
  running?.abort();
  const mine = (running = new AbortController());
  let last = "now";
  while (!mine.signal.aborted) {
    try {
      const headers = { Accept: "text/event-stream" };
      const response = await request(`/v1/events?cursor=${encodeURIComponent(last)}`, { headers, signal: mine.signal });
      if (response.status === 401 || response.status === 403) {
        $("#signed").textContent = (await response.json()).detail;
        $("#signed").classList.add("error");
        return;
      }
      $("#signed").classList.remove("error");
      $("#signed").textContent = "Signed in.";
      $("#stream").textContent = "Waiting for matches.";
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let buffer = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        buffer += value;
        const frames = buffer.split("\n\n");
        buffer = frames.pop();
        for (const frame of frames) {
          const lines = frame.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 2)]);
          const field = Object.fromEntries(lines);
          if (field.id) last = field.id;
          if (field.event === "gap") $("#stream").textContent = `Some events are missing: ${field.data}`;
          else if (field.data) show(JSON.parse(field.data));
        }
      }
    } catch (error) {
      if (mine.signal.aborted) return;
      console.debug(error);
    }
    $("#stream").textContent = "The connection is broken; trying again.";
    await new Promise((resolve) => setTimeout(resolve, 1000));
  }
}

async function count() {
  try {
    const text = await (await fetch("/metrics")).text();
    const found = {};
    for (const line of text.split("\n")) {
      const match = /^(\w+)(?:\{[^}]*\})? (\S+)$/.exec(line);
      if (match) found[match[1]] = (found[match[1]] ?? 0) + Number(match[2]);
    }
    const rows = Object.entries(COUNTERS).flatMap(([name, label]) => {
      const term = document.createElement("dt");
      const value = document.createElement("dd");
      term.textContent = label;
      value.textContent = name in found ? numbers.format(found[name]) : "–";
      return [term, value];
    });
    $("#counters").replaceChildren(...rows);
  } catch (error) {
    console.debug(error);
  }
}

count();
setInterval(count, 2000);
if (key) follow();
