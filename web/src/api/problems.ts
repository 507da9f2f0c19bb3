// Problem documents (RFC 9457): what is wrong, for people, and which field it is about.

export interface FieldProblem {
  field: string;
  reason: string;
  position?: number;
}

export class Problem extends Error {
  readonly status: number;
  readonly code: string;
  readonly errors: FieldProblem[];

  constructor(status: number, code: string, detail: string, errors: FieldProblem[] = []) {
    super(detail);
    this.name = "Problem";
    this.status = status;
    this.code = code;
    this.errors = errors;
  }

  /** The error of the field whose path ends like this, if there is one. */
  of(field: string): FieldProblem | undefined {
    return this.errors.find((one) => one.field === field || one.field.endsWith(`.${field}`));
  }
}

/** The problem that an answer is: its document, or its status if it has none. */
export async function problemOf(response: Response): Promise<Problem> {
  const text = await response.text().catch(() => "");
  try {
    const document = JSON.parse(text) as Record<string, unknown>;
    const detail = typeof document.detail === "string" ? document.detail : response.statusText;
    const code = typeof document.code === "string" ? document.code : "UNKNOWN";
    const errors = Array.isArray(document.errors) ? (document.errors as FieldProblem[]) : [];
    return new Problem(response.status, code, detail, errors);
  } catch {
    return new Problem(response.status, "UNKNOWN", `The server answered ${response.status}.`);
  }
}

/** What to tell a person about anything that was thrown. */
export function describe(error: unknown): string {
  if (error instanceof Problem) return sentence(error.message);
  if (error instanceof TypeError) return "The server cannot be reached.";
  return error instanceof Error ? sentence(error.message) : "Something unexpected happened.";
}

function sentence(text: string): string {
  const plain = text.replace(/^config\.(subscriptionDetail\.)?/, "");
  const first = plain.charAt(0).toUpperCase() + plain.slice(1);
  return /[.!?]$/.test(first) ? first : `${first}.`;
}
