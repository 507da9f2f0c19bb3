// The color of a subscription.

import { colorIndex, paletteOf } from "./colors";
import { dark } from "./theme";

export function Swatch({ id, sign = 1 }: { id: string; sign?: number }) {
  const color = paletteOf(dark.value)[colorIndex(id)]!;
  const style = sign > 0 ? { backgroundColor: color } : { borderColor: color };
  return <span class={sign > 0 ? "swatch" : "swatch hollow"} style={style} aria-hidden="true" />;
}
