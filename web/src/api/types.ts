// The shapes of the HTTP API, as docs/reference/http.md and /openapi.json describe them.

export type Position = [number, number, ...number[]];

export interface CircleRegion {
  areaType: "CIRCLE";
  center: { latitude: number; longitude: number };
  radius: number;
}

export interface BoxRegion {
  areaType: "BOX";
  west: number;
  south: number;
  east: number;
  north: number;
}

export interface PointRegion {
  type: "Point";
  coordinates: Position;
}

export interface PolygonRegion {
  type: "Polygon";
  coordinates: Position[][];
}

export interface MultiPolygonRegion {
  type: "MultiPolygon";
  coordinates: Position[][][];
}

export interface FeatureRegion {
  type: "Feature";
  geometry: PointRegion | PolygonRegion | MultiPolygonRegion;
}

export type Region =
  | CircleRegion
  | BoxRegion
  | PointRegion
  | PolygonRegion
  | MultiPolygonRegion
  | FeatureRegion;

export interface ProximityRanking {
  delta: number;
  tau: number;
  maxDistanceM: number;
}

export interface OverlapRanking {
  alpha: number;
  theta: number;
}

export type Ranking = ProximityRanking | OverlapRanking;

export interface SubscriptionDetail {
  subscriber?: string;
  keywords?: string[];
  expression?: string;
  region: Region;
  ranking?: Ranking;
  dwellS?: number;
}

export interface SubscriptionConfig {
  subscriptionDetail: SubscriptionDetail;
  subscriptionExpireTime?: string;
  subscriptionMaxEvents?: number;
  initialEvent?: boolean;
}

export interface SubscriptionRequest {
  id?: string;
  status?: "ACTIVE" | "INACTIVE";
  config: SubscriptionConfig;
}

export interface Subscription extends SubscriptionRequest {
  id: string;
  startsAt: string;
  expiresAt?: string;
  sink?: string;
  status: "ACTIVE" | "INACTIVE";
  version: number;
}

export interface SubscriptionPage {
  subscriptions: Subscription[];
  next?: string;
}

export interface Cell {
  west: number;
  south: number;
  east: number;
  north: number;
  count: number;
}

export interface Cells {
  total: number;
  cells: Cell[];
}

/** A message as its publisher wrote it. Everything in it is data of strangers. */
export interface Message {
  id?: string | number;
  text?: string;
  tokens?: string[];
  lon?: number;
  lat?: number;
  west?: number;
  south?: number;
  east?: number;
  north?: number;
  geometry?: { type: string; coordinates: Position };
  time?: string | number;
  ttl_s?: number;
  properties?: Record<string, unknown>;
}

export interface MatchOf {
  subscriptionId: string;
  sign: 1 | -1;
  score?: number;
  /** Whose it is, in events of all subscribers. */
  subscriber?: string;
}

/** Whose events are read: a subscriber, or null for all of the tenant. */
export type Whose = string | null;

export interface CloudEvent {
  id: string;
  type: string;
  time: string;
  subject?: string;
  data: {
    message?: Message | null;
    matches?: MatchOf[];
    /** How many matches are not listed. */
    omitted?: number;
    subscriptionId?: string;
    subscriber?: string;
    terminationReason?: string;
  };
}

export interface Gap {
  from: string;
  to: string;
  lost: number | null;
}

export interface EventPage {
  events: CloudEvent[];
  cursor: string;
  gap?: Gap;
}

export interface WeighedWord {
  word: string;
  weight?: number;
  share?: number;
}

export interface Explanation {
  subscriptionId?: string;
  sign?: 1 | -1;
  kind?: string;
  matches?: boolean;
  reasons: string[];
  shared?: WeighedWord[];
  missing?: WeighedWord[];
  distanceM?: number;
  score?: number;
  scoreThen?: number;
  parts?: { words: number; place: number };
  threshold?: number;
  margin?: number;
}

export interface Explained {
  id: string;
  message: Message;
  explanations: Explanation[];
}

export interface PreviewedMessage extends Explanation {
  id: string;
  message: Message;
  matches: boolean;
}

export interface Preview {
  warnings?: string[];
  matched: number;
  messages: PreviewedMessage[];
}

export interface Reach {
  subscriptions: number;
  subscribers?: number;
}

export interface DryRun {
  accepted: number;
  reach: Reach[];
  rejected: Rejected[];
}

export interface Rejected {
  line: number;
  field: string;
  reason: string;
}

export interface Published {
  accepted: number;
  firstId: string;
  lastId: string;
  rejected: Rejected[];
}

export interface StoredMessage {
  id: string;
  publishedAt: string;
  message: Message;
  reach: Reach | null;
}

export interface Imported {
  accepted: number;
  rejectedCount: number;
  rejected: Rejected[];
}

export interface Moved {
  moved: number;
  rejectedCount: number;
  rejected: Rejected[];
}

export interface TraceBox {
  west: number;
  south: number;
  east: number;
  north: number;
  level: number;
  opened: boolean;
}

export interface TraceNode {
  path: string[];
  clauses: number;
  boxes: TraceBox[];
  examined: number;
  matched: number;
}

export interface TraceSegment {
  index: string;
  subscriptions: number;
  nodes: TraceNode[];
}

export interface Trace {
  id: string;
  message: Message;
  tokens: string[];
  examined: number;
  matches: number;
  segments: TraceSegment[];
  truncated: boolean;
}

export interface History {
  from: string;
  to: string;
  firstId: string;
  lastId: string;
  approximate?: boolean;
  buckets: { from: string; messages: number }[];
}

export interface About {
  name: string;
  version: string;
  demo: boolean;
  tiles: string | null;
  epoch: number;
}

export type Role = "publish" | "subscribe" | "admin";

export interface Me {
  tenant: string;
  roles: Role[];
  subscriber: string | null;
  expiresAt: string | null;
}

export interface SignedIn extends Me {
  token: string;
}
