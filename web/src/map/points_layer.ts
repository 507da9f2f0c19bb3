// Points of events, drawn by the graphics card from a ring buffer.
//
// GeoJSON sources are cut into tiles again at every change: with 10,000 points that blocks the page
// for up to 200 ms. Here a new point is 20 bytes that go to the graphics card.

import type { CustomLayerInterface, CustomRenderMethodInput, Map as MapLibre } from "maplibre-gl";
import { rgb } from "../ui/colors";
import { FLOATS, PointRing } from "./ring_buffer";

const VERTEX = `#version 300 es
uniform mat4 u_matrix;
uniform float u_now, u_scale, u_world;
uniform vec3 u_palette[8];
layout(location = 0) in vec2 a_place;
layout(location = 1) in float a_time;
layout(location = 2) in float a_color;
layout(location = 3) in float a_sign;
out vec3 v_color;
out float v_alpha, v_sign, v_ring;
void main() {
  float age = max(u_now - a_time, 0.0);
  float young = exp(-age * 1.8);
  v_color = u_palette[int(a_color)];
  v_alpha = mix(0.28, 0.95, exp(-age / 45.0));
  v_sign = a_sign;
  v_ring = young;
  gl_Position = u_matrix * vec4(a_place.x + u_world, a_place.y, 0.0, 1.0);
  gl_PointSize = u_scale * (7.0 + 20.0 * young);
}`;

const FRAGMENT = `#version 300 es
precision mediump float;
in vec3 v_color;
in float v_alpha, v_sign, v_ring;
out vec4 color;
void main() {
  float far = length(gl_PointCoord - 0.5) * 2.0;
  float core = 7.0 / (7.0 + 20.0 * v_ring);
  float dot = 1.0 - smoothstep(core * 0.8, core, far);
  if (v_sign < 0.0) dot *= smoothstep(core * 0.35, core * 0.55, far);
  float halo = (1.0 - smoothstep(0.85, 1.0, far)) * 0.45 * v_ring;
  float alpha = max(dot * v_alpha, halo);
  if (alpha < 0.01) discard;
  color = vec4(v_color * alpha, alpha);
}`;

const FRAME_MS = 100; // while points glow; enough for the eye, and a sixth of the work
const GLOW_S = 2.5;

export class PointsLayer implements CustomLayerInterface {
  readonly id = "points";
  readonly type = "custom" as const;
  readonly renderingMode = "2d" as const;
  readonly ring: PointRing;
  palette: readonly string[];
  #map: MapLibre | null = null;
  #program: WebGLProgram | null = null;
  #buffer: WebGLBuffer | null = null;
  #array: WebGLVertexArrayObject | null = null;
  #places: Record<string, WebGLUniformLocation | null> = {};
  #timer = 0;
  #lastPoint = -Infinity;

  constructor(capacity: number, palette: readonly string[]) {
    this.ring = new PointRing(capacity);
    this.palette = palette;
  }

  /** Seconds since the page was opened, the clock of the points. */
  now(): number {
    return performance.now() / 1000;
  }

  push(x: number, y: number, color: number, sign: number, age = 0): number {
    this.#lastPoint = Math.max(this.#lastPoint, this.now() - age);
    return this.ring.push({ x, y, time: this.now() - age, color, sign });
  }

  clear(): void {
    this.ring.clear();
    this.repaint();
  }

  /** Draws soon, and again while points glow. */
  repaint(): void {
    if (this.#timer || !this.#map) return;
    this.#timer = window.setTimeout(() => {
      this.#timer = 0;
      this.#map?.triggerRepaint();
      if (this.now() - this.#lastPoint < GLOW_S) this.repaint();
    }, FRAME_MS);
  }

  onAdd(map: MapLibre, gl: WebGLRenderingContext | WebGL2RenderingContext): void {
    const context = gl as WebGL2RenderingContext;
    this.#map = map;
    this.#program = linked(context);
    for (const name of ["u_matrix", "u_now", "u_scale", "u_world", "u_palette"]) {
      this.#places[name] = context.getUniformLocation(this.#program, name);
    }
    this.#array = context.createVertexArray();
    this.#buffer = context.createBuffer();
    context.bindVertexArray(this.#array);
    context.bindBuffer(context.ARRAY_BUFFER, this.#buffer);
    context.bufferData(context.ARRAY_BUFFER, this.ring.data.byteLength, context.DYNAMIC_DRAW);
    const stride = FLOATS * 4;
    for (const [at, size, offset] of [[0, 2, 0], [1, 1, 8], [2, 1, 12], [3, 1, 16]] as const) {
      context.enableVertexAttribArray(at);
      context.vertexAttribPointer(at, size, context.FLOAT, false, stride, offset);
    }
    context.bindVertexArray(null);
    this.ring.dirtyAll();
  }

  onRemove(): void {
    this.#map = null;
    window.clearTimeout(this.#timer);
    this.#timer = 0;
  }

  render(gl: WebGLRenderingContext | WebGL2RenderingContext, input: CustomRenderMethodInput): void {
    const context = gl as WebGL2RenderingContext;
    if (!this.#map || this.ring.size === 0) return;
    context.useProgram(this.#program);
    context.bindVertexArray(this.#array);
    context.bindBuffer(context.ARRAY_BUFFER, this.#buffer);
    for (const { first, count } of this.ring.takeDirty()) {
      const part = this.ring.data.subarray(first * FLOATS, (first + count) * FLOATS);
      context.bufferSubData(context.ARRAY_BUFFER, first * FLOATS * 4, part);
    }
    const matrix = input.defaultProjectionData.mainMatrix as Float32List;
    context.uniformMatrix4fv(this.#places.u_matrix ?? null, false, matrix);
    context.uniform1f(this.#places.u_now ?? null, this.now());
    context.uniform1f(this.#places.u_scale ?? null, window.devicePixelRatio);
    context.uniform3fv(this.#places.u_palette ?? null, this.palette.flatMap(rgb));
    context.enable(context.BLEND);
    context.blendFunc(context.ONE, context.ONE_MINUS_SRC_ALPHA);
    context.disable(context.DEPTH_TEST);
    for (const world of this.#worlds()) {
      context.uniform1f(this.#places.u_world ?? null, world);
      context.drawArrays(context.POINTS, 0, this.ring.size);
    }
    context.bindVertexArray(null);
  }

  /** The copies of the world that are in view. */
  #worlds(): number[] {
    const bounds = this.#map!.getBounds();
    const first = Math.floor((bounds.getWest() + 180) / 360);
    const last = Math.floor((bounds.getEast() + 180) / 360);
    return Array.from({ length: Math.min(last - first + 1, 5) }, (_, at) => first + at);
  }
}

function linked(gl: WebGL2RenderingContext): WebGLProgram {
  const program = gl.createProgram()!;
  for (const [kind, source] of [
    [gl.VERTEX_SHADER, VERTEX],
    [gl.FRAGMENT_SHADER, FRAGMENT],
  ] as const) {
    const shader = gl.createShader(kind)!;
    gl.shaderSource(shader, source);
    gl.compileShader(shader);
    if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) {
      throw new Error(gl.getShaderInfoLog(shader) ?? "a shader does not compile");
    }
    gl.attachShader(program, shader);
  }
  gl.linkProgram(program);
  return program;
}
