// Small line icons. They are decoration: what a button does is in its name.

const PATHS = {
  rectangle: "M4 6h16v12H4z",
  circle: "M12 4a8 8 0 1 0 0 16a8 8 0 1 0 0-16z",
  polygon: "M12 3l8 6l-3 11H7L4 9z",
  point: "M12 21s-6-5.5-6-11a6 6 0 1 1 12 0c0 5.5-6 11-6 11zM12 8.5a2 2 0 1 0 0 4a2 2 0 1 0 0-4z",
  plus: "M12 5v14M5 12h14",
  close: "M6 6l12 12M18 6L6 18",
  pause: "M8 5v14M16 5v14",
  play: "M7 5l12 7l-12 7z",
  edit: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4",
  trash: "M5 7h14M9 7V4h6v3M7 7l1 13h8l1-13",
  zoom: "M10.5 4a6.5 6.5 0 1 0 0 13a6.5 6.5 0 1 0 0-13zM15.5 15.5L20 20",
  sun: "M12 8a4 4 0 1 0 0 8a4 4 0 1 0 0-8zM12 2v3M12 19v3M2 12h3M19 12h3M5 5l2 2M17 17l2 2M5 19l2-2M17 7l2-2",
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5z",
  help: "M9 9a3 3 0 1 1 4.2 2.7c-.8.4-1.2 1-1.2 2.3M12 17.5v.5",
  user: "M12 4a4 4 0 1 0 0 8a4 4 0 1 0 0-8zM4 20c1-4 4-6 8-6s7 2 8 6",
  mute: "M4 10v4h3l5 4V6L7 10zM16 9l5 6M21 9l-5 6",
  send: "M4 12l16-8l-6 16l-3-6z",
  chart: "M4 20V4M4 20h16M8 16l4-5l3 3l5-7",
  history: "M4 12a8 8 0 1 0 3-6.2L4 8M4 4v4h4M12 8v4l3 2",
  bell: "M6 17V11a6 6 0 1 1 12 0v6l2 1H4zM10 21h4",
  layers: "M12 4l9 5l-9 5l-9-5zM3 14l9 5l9-5",
  download: "M12 4v11M8 11l4 4l4-4M5 20h14",
  upload: "M12 16V5M8 9l4-4l4 4M5 20h14",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}
