// The last n points, in arrays that go to the graphics card as they are.
//
// A point is five floats: x and y (Web Mercator, 0 to 1), the second at which it came (counted
// from the start of the page, so that a float is exact enough), a color, and a sign (1 or -1).

export const FLOATS = 5;

export interface PointData {
  x: number;
  y: number;
  time: number;
  color: number;
  sign: number;
}

export interface DirtyRange {
  first: number;
  count: number;
}

export class PointRing {
  readonly capacity: number;
  readonly data: Float32Array;
  #next = 0;
  #size = 0;
  #dirty = 0;

  constructor(capacity: number) {
    this.capacity = capacity;
    this.data = new Float32Array(capacity * FLOATS);
  }

  get size(): number {
    return this.#size;
  }

  push(point: PointData): number {
    const at = this.#next;
    this.data.set([point.x, point.y, point.time, point.color, point.sign], at * FLOATS);
    this.#next = (at + 1) % this.capacity;
    this.#size = Math.min(this.#size + 1, this.capacity);
    this.#dirty = Math.min(this.#dirty + 1, this.capacity);
    return at;
  }

  clear(): void {
    this.#next = this.#size = this.#dirty = 0;
  }

  /** The slots written since the last call: one range, or two around the end of the ring. */
  takeDirty(): DirtyRange[] {
    const count = this.#dirty;
    this.#dirty = 0;
    if (count === 0) return [];
    const first = (this.#next - count + this.capacity) % this.capacity;
    if (first + count <= this.capacity) return [{ first, count }];
    const tail = this.capacity - first;
    return [
      { first, count: tail },
      { first: 0, count: count - tail },
    ];
  }

  /** Marks everything as written, for a new buffer on the graphics card. */
  dirtyAll(): void {
    this.#dirty = this.#size;
  }
}

/** Web Mercator, from 0 at the north-west to 1 at the south-east. */
export function mercator(lon: number, lat: number): [number, number] {
  const limited = Math.max(-85.0511, Math.min(85.0511, lat)) * (Math.PI / 180);
  const y = Math.log(Math.tan(Math.PI / 4 + limited / 2));
  return [(lon + 180) / 360, (1 - y / Math.PI) / 2];
}
