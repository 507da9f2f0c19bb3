// A subscription while it is being written: what the form holds, and the resource that it means.

import type { Region, Subscription, SubscriptionDetail, SubscriptionRequest } from "../api/types";
import type { DrawKind } from "../map/drawing";
import type { Sliders } from "./sliders";
import { DEFAULT_SLIDERS, isPoint, rankingOf, slidersOf } from "./sliders";

export interface Draft {
  /** The subscription that is changed; null for a new one. */
  original: Subscription | null;
  id: string;
  kind: DrawKind;
  region: Region | null;
  ranked: boolean;
  /** The words that the score of a ranked subscription counts, with spaces or commas between. */
  keywords: string;
  expression: string;
  sliders: Sliders;
  reachM: number;
  initialEvent: boolean;
}

export const DEFAULT_REACH_M = 500_000;

export function newDraft(kind: DrawKind = "rectangle"): Draft {
  return {
    original: null,
    id: "",
    kind,
    region: null,
    ranked: kind === "point",
    keywords: "",
    expression: "",
    sliders: DEFAULT_SLIDERS,
    reachM: DEFAULT_REACH_M,
    initialEvent: false,
  };
}

export function draftOf(subscription: Subscription): Draft {
  const { config } = subscription;
  const detail = config.subscriptionDetail;
  const ranked = detail.ranking !== undefined;
  const keywords = detail.keywords ?? [];
  return {
    original: subscription,
    id: subscription.id,
    kind: kindOf(detail.region),
    region: detail.region,
    ranked,
    keywords: ranked ? keywords.join(", ") : "",
    expression: detail.expression ?? (ranked ? "" : keywords.map(asTerm).join(" ")),
    sliders: detail.ranking ? slidersOf(detail.ranking) : DEFAULT_SLIDERS,
    reachM:
      detail.ranking && "maxDistanceM" in detail.ranking
        ? detail.ranking.maxDistanceM
        : DEFAULT_REACH_M,
    initialEvent: config.initialEvent ?? false,
  };
}

/** What to send; null until there is a region and, where they are needed, words. */
export function requestOf(draft: Draft, subscriber: string): SubscriptionRequest | null {
  if (!draft.region) return null;
  const expression = draft.expression.trim();
  const keywords = words(draft.keywords);
  if (draft.ranked ? keywords.length === 0 && !expression : !expression) return null;
  const detail: SubscriptionDetail = { subscriber, region: reaching(draft) };
  const before = draft.original?.config.subscriptionDetail;
  if (before?.subscriber !== undefined) detail.subscriber = before.subscriber;
  if (before?.dwellS) detail.dwellS = before.dwellS;
  if (expression) detail.expression = expression;
  if (draft.ranked) {
    if (keywords.length > 0) detail.keywords = keywords;
    detail.ranking = rankingOf(draft.sliders, draft.region, draft.reachM);
  }
  const config = { ...draft.original?.config, subscriptionDetail: detail };
  config.initialEvent = draft.initialEvent;
  const request: SubscriptionRequest = { config };
  if (draft.id.trim()) request.id = draft.id.trim();
  if (draft.original) {
    const { sink, types, status } = draft.original as Subscription & { types?: string[] };
    Object.assign(request, sink ? { sink } : {}, types ? { types } : {}, { status });
  }
  return request;
}

/** A point that is not ranked is a circle of its reach: otherwise nothing would ever be in it. */
function reaching(draft: Draft): Region {
  const region = draft.region!;
  if (draft.ranked || !isPoint(region)) return region;
  const point = "areaType" in region || region.type === "Feature" ? null : region;
  const [longitude, latitude] = (point?.coordinates ?? [0, 0]) as [number, number];
  return { areaType: "CIRCLE", center: { longitude, latitude }, radius: draft.reachM };
}

export function words(text: string): string[] {
  return text
    .split(/[,\n]|\s+/)
    .map((word) => word.trim())
    .filter((word) => word !== "");
}

export function kindOf(region: Region): DrawKind {
  if ("areaType" in region) return region.areaType === "BOX" ? "rectangle" : "circle";
  return isPoint(region) ? "point" : "polygon";
}

/** What a subscription asks for, in a line. */
export function wordsOf(detail: SubscriptionDetail): string {
  const keywords = detail.keywords?.join(detail.ranking ? ", " : " ") ?? "";
  if (!detail.expression) return keywords || "anything";
  return keywords ? `${keywords} (${detail.expression})` : detail.expression;
}

/** A keyword as a term of an expression: all its words, in any order. */
function asTerm(keyword: string): string {
  return /^(AND|OR|NOT)$/.test(keyword) ? `"${keyword}"` : keyword;
}
