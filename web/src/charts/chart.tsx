// A small live chart. uPlot is loaded when the first one is shown.

import { useEffect, useRef } from "preact/hooks";
import type uPlot from "uplot";
import { dark } from "../ui/theme";

export interface Series {
  label: string;
  values: (number | null)[];
  color: number;
}

interface ChartProps {
  title: string;
  times: number[];
  series: Series[];
  format: (value: number) => string;
}

const COLORS = {
  light: ["#0f766e", "#c2410c"],
  dark: ["#2dd4bf", "#fb923c"],
};

export function Chart({ title, times, series, format }: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const theme = dark.value ? "dark" : "light";
  useEffect(() => {
    let gone = false;
    const element = box.current!;
    void import("./uplot").then(({ makePlot }) => {
      if (gone) return;
      const colors = series.map((one) => COLORS[theme][one.color]!);
      plot.current = makePlot(element, colors, theme === "dark", format);
      plot.current.setData([times, ...series.map((one) => one.values)]);
    });
    const resized = new ResizeObserver(() => {
      plot.current?.setSize({ width: element.clientWidth, height: element.clientHeight });
    });
    resized.observe(element);
    return () => {
      gone = true;
      resized.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [theme]);
  useEffect(() => {
    plot.current?.setData([times, ...series.map((one) => one.values)]);
  }, [times]);
  const latest = series.map((one) => {
    const value = one.values.at(-1);
    return { label: one.label, text: value === null || value === undefined ? "–" : format(value) };
  });
  return (
    <figure class="chart">
      <figcaption>
        <span>{title}</span>
        <span class="chart-values">
          {latest.map((one) => (
            <span key={one.label}>
              {one.label && <small>{one.label} </small>}
              <b>{one.text}</b>
            </span>
          ))}
        </span>
      </figcaption>
      <div class="chart-plot" ref={box} aria-hidden="true" />
    </figure>
  );
}
