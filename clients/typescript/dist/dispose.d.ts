/// <reference lib="esnext.disposable" preserve="true" />
/** `Symbol.asyncDispose`, or what stands in for it where the language has none yet. */
export declare const asyncDispose: typeof Symbol.asyncDispose;
