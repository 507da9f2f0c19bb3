// Buttons and fields that all panels use.

import type { ComponentChildren } from "preact";
import { Icon, type IconName } from "./icons";

interface ButtonProps {
  label: string;
  icon?: IconName;
  kind?: "primary" | "quiet" | "danger" | "plain";
  pressed?: boolean;
  disabled?: boolean;
  /** Only the icon is seen; the label is read out and shown as a tooltip. */
  compact?: boolean;
  submit?: boolean;
  onClick?: () => void;
}

export function Button(props: ButtonProps) {
  const { label, icon, kind = "plain", compact = false } = props;
  return (
    <button
      type={props.submit ? "submit" : "button"}
      class={`button ${kind}${compact ? " compact" : ""}`}
      aria-label={compact ? label : undefined}
      title={compact ? label : undefined}
      aria-pressed={props.pressed}
      disabled={props.disabled}
      onClick={props.onClick}
    >
      {icon && <Icon name={icon} />}
      {!compact && <span>{label}</span>}
    </button>
  );
}

interface FieldProps {
  label: string;
  hint?: string | undefined;
  children: ComponentChildren;
}

export function Field({ label, hint, children }: FieldProps) {
  return (
    <label class="field">
      <span class="field-label">{label}</span>
      {children}
      {hint && <span class="hint">{hint}</span>}
    </label>
  );
}

interface SliderProps {
  name: string;
  from: string;
  to: string;
  value: number;
  onInput: (value: number) => void;
}

/** A slider between two words. */
export function Slider({ name, from, to, value, onInput }: SliderProps) {
  return (
    <label class="slider">
      <span class="visually-hidden">{name}</span>
      <input
        type="range"
        min={0}
        max={100}
        step={1}
        value={value}
        aria-valuetext={`${value} of 100, from ${from} to ${to}`}
        onInput={(event) => onInput(Number(event.currentTarget.value))}
      />
      <span class="slider-ends" aria-hidden="true">
        <span>{from}</span>
        <span>{to}</span>
      </span>
    </label>
  );
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}
