// uPlot with the settings of our small charts: no legend, no axes but a scale, areas below lines.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

export function makePlot(
  element: HTMLElement,
  colors: readonly string[],
  dark: boolean,
  format: (value: number) => string,
): uPlot {
  const [ink, line] = dark ? ["#9aabb5", "#26333b"] : ["#55646d", "#e6eaec"];
  const options: uPlot.Options = {
    width: Math.max(element.clientWidth, 50),
    height: Math.max(element.clientHeight, 40),
    padding: [6, 4, 2, 0],
    legend: { show: false },
    cursor: { show: false },
    scales: { x: { time: true }, y: { range: (_plot, _min, max) => [0, Math.max(max * 1.15, 1e-9)] } },
    axes: [
      { show: false },
      {
        size: 44,
        stroke: ink,
        font: "10px system-ui, sans-serif",
        gap: 3,
        space: 22,
        grid: { stroke: line, width: 1 },
        ticks: { show: false },
        values: (_plot, splits) => splits.map((value) => format(value)),
      },
    ],
    series: [
      {},
      ...colors.map((color) => ({
        stroke: color,
        width: 1.6,
        fill: `${color}1f`,
        points: { show: false },
        spanGaps: true,
      })),
    ],
  };
  const empty = [[], ...colors.map(() => [])] as unknown as uPlot.AlignedData;
  return new uPlot(options, empty, element);
}
