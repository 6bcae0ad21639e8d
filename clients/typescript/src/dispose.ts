// For programs whose own `lib` does not have it: it declares, and brings nothing along.
/// <reference lib="esnext.disposable" preserve="true" />

/** `Symbol.asyncDispose`, or what stands in for it where the language has none yet. */
export const asyncDispose: typeof Symbol.asyncDispose =
  Symbol.asyncDispose ?? (Symbol.for("Symbol.asyncDispose") as typeof Symbol.asyncDispose);
