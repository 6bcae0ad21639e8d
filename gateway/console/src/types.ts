/** Shapes of `/console/api`, as docs/console.md describes them. Bytes come as base64. */

/** Bytes of a record or an entry; `text` is base64 of at most the bytes that were asked for. */
export interface Bytes {
  base64: string;
  /** How many there are in full. */
  bytes: number;
  /** Whether `base64` holds fewer. */
  cut: boolean;
}

export interface Grant {
  action: string;
  object: string;
}

export interface Me {
  principal: string;
  tenant: string;
  name: string | null;
  roles: string[];
  actor: string | null;
  session: string | null;
  expires_at_ms: number | null;
  /** How the caller is known: a cookie of `/auth/login`, or a token he sends. */
  via: "session" | "token";
  grants: Grant[];
  /** Whether the gateway lets this console write at all. */
  writable: boolean;
  namespaces: string[];
  actions: string[];
  version: string;
}

export interface Shard {
  shard: number;
  start: number;
  /** Exclusive. */
  end: number;
  bytes: number;
  error: string | null;
}

export interface Stream {
  stream: string;
  incarnation: number;
  durable: boolean;
  compacted: boolean;
  shards: Shard[];
  may_publish: boolean;
  may_subscribe: boolean;
  may_manage: boolean;
  max_record_bytes: number;
  retention_ms: number | null;
  retention_bytes: number | null;
}

export interface StreamFull extends Stream {
  /** What the control plane keeps; null for who does not manage the stream. */
  settings: Record<string, string | number | boolean | null> | null;
  acknowledged_means: string;
}

export interface Page<T> {
  items: T[];
  next: string | null;
}

export interface Header {
  name: string;
  value: Bytes | null;
}

export interface Rec {
  shard: number;
  offset: number | null;
  timestamp_ms: number | null;
  key: Bytes | null;
  /** Null for a tombstone. */
  value: Bytes | null;
  headers: Header[];
  publisher: string | null;
}

export interface Records {
  shard: number;
  /** The offset that was asked for, resolved: the first row is the first record at or after it. */
  from: number;
  /** The shard's oldest offset. */
  start: number;
  /** The shard's next offset. */
  end: number;
  records: Rec[];
  /** Where the page after this one begins; null at the end. */
  next: number | null;
  /** The offset that the page before this one ends below; null at the start. */
  previous: number | null;
}

export interface Found {
  matches: Rec[];
  scanned: number;
  next: number | null;
  end: number;
}

export interface Cache {
  cache: string;
  settings: Record<string, string | number | boolean | null> | null;
  may_read: boolean;
  may_write: boolean;
  may_add: boolean;
}

export interface Entry {
  key: string;
  value: Bytes | null;
  version: number | null;
  expires_at_ms: number | null;
}

export interface Change {
  key: string;
  value: Bytes | null;
  version: number;
  shard: number;
  expires_at_ms: number | null;
  retained: boolean;
}

export interface History {
  changes: Change[];
  /** Whether older versions are gone. */
  compacted: boolean;
}

export interface Standing {
  shard: number;
  committed: number | null;
  tail: number;
  lag: number;
  in_flight: number;
  owed: number;
  dead_letters: number;
}

export interface Group {
  stream: string;
  group: string;
  shards: Standing[];
}

export interface Move {
  shard: number;
  current: number | null;
  start: number;
  end: number;
  target: number;
  moved: boolean;
}

export interface Letter {
  shard: number;
  offset: number;
  attempts: number;
  reason: string;
  set_aside_at_ms: number;
  timestamp_ms: number;
  key: Bytes | null;
  value: Bytes | null;
  headers: Header[];
}

export interface KafkaGroup {
  group: string;
  kind: string;
  state: string;
  protocol: string;
  members: { member: string; client: string; host: string }[];
  offsets: { namespace: string; stream: string; shard: number; offset: number; end: number | null }[];
}

export interface Broker {
  address: string;
  node: string | null;
  entry: boolean;
  ok: boolean;
  detail: string | null;
}

export interface Explanation {
  allowed: boolean;
  because: string;
  near: { grant: string; lacks: string }[];
}

export interface Refusal {
  code: string;
  message: string;
  /** `now`, `later`, `look_first` or `never`. */
  retry: string;
  retry_after_ms?: number;
  request_id: string;
  /** The version that stands, or the next offset. */
  number?: number;
}
