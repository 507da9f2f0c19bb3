// A typed client of the HTTP API. It knows no state but the credential.

import { problemOf } from "./problems";
import type {
  About,
  Cells,
  DryRun,
  EventPage,
  Explained,
  History,
  Imported,
  Me,
  Message,
  Moved,
  Preview,
  Published,
  Region,
  SignedIn,
  StoredMessage,
  Subscription,
  SubscriptionPage,
  SubscriptionRequest,
  Trace,
  Whose,
} from "./types";

export interface Bounds {
  west: number;
  south: number;
  east: number;
  north: number;
}

type Query = Record<string, string | number | boolean | undefined>;

interface Options {
  method?: string;
  query?: Query;
  json?: unknown;
  body?: string | Blob;
  type?: string;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

const NDJSON = "application/x-ndjson";

export class Client {
  /** Called when the server no longer knows the credential. */
  onUnauthenticated: () => void = () => {};
  #credential = "";

  get credential(): string {
    return this.#credential;
  }

  signInWith(credential: string): void {
    this.#credential = credential;
  }

  about(): Promise<About> {
    return this.#json("/v1/about");
  }

  me(): Promise<Me> {
    return this.#json("/v1/me");
  }

  signIn(code?: string): Promise<SignedIn> {
    const json = code === undefined ? {} : { code };
    return this.#json("/v1/sign-in", { method: "POST", json });
  }

  subscriptions(query: Query, signal?: AbortSignal): Promise<SubscriptionPage> {
    return this.#json("/v1/subscriptions", { query, signal });
  }

  subscription(id: string): Promise<Subscription> {
    return this.#json(path("/v1/subscriptions", id));
  }

  cells(bounds: Bounds, columns: number, signal?: AbortSignal): Promise<Cells> {
    return this.#json("/v1/subscriptions/cells", {
      query: { bbox: bboxText(bounds), columns },
      signal,
    });
  }

  create(resource: SubscriptionRequest): Promise<Subscription> {
    return this.#json("/v1/subscriptions", { method: "POST", json: resource });
  }

  replace(id: string, resource: SubscriptionRequest, version: number): Promise<Subscription> {
    return this.#json(path("/v1/subscriptions", id), {
      method: "PUT",
      json: resource,
      headers: { "If-Match": `"${version}"` },
    });
  }

  change(id: string, patch: unknown): Promise<Subscription> {
    return this.#json(path("/v1/subscriptions", id), { method: "PATCH", json: patch });
  }

  async remove(id: string): Promise<void> {
    await this.#send(path("/v1/subscriptions", id), { method: "DELETE" });
  }

  import(body: string, type: string, upsert: boolean): Promise<Imported> {
    const query = { upsert: upsert ? 1 : undefined };
    return this.#json("/v1/subscriptions/import", { method: "POST", query, body, type });
  }

  move(id: string, region: Region): Promise<Moved> {
    const body = JSON.stringify({ subscriptionId: id, region });
    return this.#json("/v1/moves", { method: "POST", body, type: NDJSON });
  }

  preview(
    subscription: SubscriptionRequest,
    messages: number,
    signal?: AbortSignal,
  ): Promise<Preview> {
    return this.#json("/v1/preview", { method: "POST", json: { subscription, messages }, signal });
  }

  publish(message: Message, key: string): Promise<Published> {
    return this.#json("/v1/messages", {
      method: "POST",
      json: message,
      headers: { "Idempotency-Key": key, Prefer: "handling=strict" },
    });
  }

  dryRun(message: Message, signal?: AbortSignal): Promise<DryRun> {
    return this.#json("/v1/messages", {
      method: "POST",
      query: { dryRun: 1 },
      json: message,
      signal,
    });
  }

  message(id: string): Promise<StoredMessage> {
    return this.#json(path("/v1/messages", id));
  }

  trace(id: string): Promise<Trace> {
    return this.#json(`${path("/v1/messages", id)}/trace`);
  }

  history(): Promise<History> {
    return this.#json("/v1/history");
  }

  explain(id: string, whose: Whose): Promise<Explained> {
    return this.#json(`${path("/v1/events", id)}/explain`, { query: whoseQuery(whose) });
  }

  poll(whose: Whose, cursor: string, limit: number, signal?: AbortSignal): Promise<EventPage> {
    return this.#json("/v1/events", { query: { ...whoseQuery(whose), cursor, poll: 1, limit }, signal });
  }

  /** The stream of events after a cursor: the answer, whose body is server-sent events. */
  stream(whose: Whose, cursor: string, signal: AbortSignal): Promise<Response> {
    return this.#send("/v1/events", {
      query: { ...whoseQuery(whose), cursor },
      headers: { Accept: "text/event-stream" },
      signal,
    });
  }

  async metrics(signal?: AbortSignal): Promise<string> {
    const response = await fetch("/metrics", { signal: signal ?? null });
    if (!response.ok) throw await problemOf(response);
    return response.text();
  }

  async #json<T>(url: string, options: Options = {}): Promise<T> {
    const response = await this.#send(url, options);
    return (await response.json()) as T;
  }

  async #send(url: string, options: Options): Promise<Response> {
    const headers: Record<string, string> = { Accept: "application/json", ...options.headers };
    if (this.#credential) headers.Authorization = `Bearer ${this.#credential}`;
    let body: string | Blob | null = options.body ?? null;
    if (options.json !== undefined) {
      body = JSON.stringify(options.json);
      headers["Content-Type"] = options.method === "PATCH" ? MERGE_PATCH : "application/json";
    } else if (options.type !== undefined) {
      headers["Content-Type"] = options.type;
    }
    const response = await fetch(url + queryText(options.query), {
      method: options.method ?? "GET",
      headers,
      body,
      cache: "no-store",
      signal: options.signal ?? null,
    });
    if (response.ok) return response;
    if (response.status === 401 && url !== "/v1/sign-in") this.onUnauthenticated();
    throw await problemOf(response);
  }
}

const MERGE_PATCH = "application/merge-patch+json";

export function bboxText(bounds: Bounds): string {
  const { west, south, east, north } = bounds;
  return [west, south, east, north].map((degrees) => degrees.toFixed(5)).join(",");
}

function whoseQuery(whose: Whose): Query {
  return whose === null ? { all: 1 } : { subscriber: whose };
}

function path(collection: string, id: string): string {
  return `${collection}/${encodeURIComponent(id)}`;
}

function queryText(query: Query = {}): string {
  const given = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined) given.set(name, String(value));
  }
  const text = given.toString();
  return text && `?${text}`;
}
