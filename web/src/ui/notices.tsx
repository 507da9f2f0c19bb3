// Notices, read out by screen readers as they come.

import { dismiss, notices } from "../store/notices";
import { Button } from "./controls";

export function Notices() {
  return (
    <div class="notices" role="log" aria-live="polite" aria-label="Notices">
      {notices.value.map((notice) => (
        <div key={notice.id} class={`notice ${notice.kind}`}>
          <span>{notice.text}</span>
          {notice.action && (
            <Button
              label={notice.action.label}
              kind="quiet"
              onClick={() => {
                notice.action!.run();
                dismiss(notice.id);
              }}
            />
          )}
          <Button label="Dismiss" icon="close" kind="quiet" compact onClick={() => dismiss(notice.id)} />
        </div>
      ))}
    </div>
  );
}
