// The product of two matrices, by WebAssembly where it is to be had, and else the same in JavaScript.
//
// Both have the arguments of kernel.wat. JavaScript adds in doubles, so its last digits differ.

// Memory for `bytes`, as floats from place 0 on, and the product within it.
function makeMemory(bytes, wasm) {
  if (!wasm) {
    const buffer = new ArrayBuffer(bytes);
    return { buffer, multiply: multiplyInJavaScript(new Float32Array(buffer)) };
  }
  const memory = new WebAssembly.Memory({ initial: Math.ceil(bytes / 65536) });
  const made = new WebAssembly.Instance(new WebAssembly.Module(wasm), { page: { memory } });
  return { buffer: memory.buffer, multiply: made.exports.multiply };
}

const multiplyInJavaScript = (f) => (M, N, K, A, aRow, aColumn, B, bRow, C, cRow, add) => {
  A /= 4; B /= 4; C /= 4; aRow /= 4; aColumn /= 4; bRow /= 4; cRow /= 4; // floats have numbers here, not bytes
  for (let m = 0; m < M; m += 2) {
    for (let n = 0; n < N; n += 4) {
      const c = C + m * cRow + n, d = c + cRow;
      let a = A + m * aRow, b = B + n, c0 = 0, c1 = 0, c2 = 0, c3 = 0, d0 = 0, d1 = 0, d2 = 0, d3 = 0;
      if (add) {
        c0 = f[c]; c1 = f[c + 1]; c2 = f[c + 2]; c3 = f[c + 3];
        d0 = f[d]; d1 = f[d + 1]; d2 = f[d + 2]; d3 = f[d + 3];
      }
      for (let k = 0; k < K; k++, a += aColumn, b += bRow) {
        const x = f[a], y = f[a + aRow], b0 = f[b], b1 = f[b + 1], b2 = f[b + 2], b3 = f[b + 3];
        c0 += x * b0; c1 += x * b1; c2 += x * b2; c3 += x * b3;
        d0 += y * b0; d1 += y * b1; d2 += y * b2; d3 += y * b3;
      }
      f[c] = c0; f[c + 1] = c1; f[c + 2] = c2; f[c + 3] = c3;
      f[d] = d0; f[d + 1] = d1; f[d + 2] = d2; f[d + 3] = d3;
    }
  }
};

// Bytes from base64, and floats of 16 bits from bytes.
const bytesOf = (text) => Uint8Array.from(atob(text), (character) => character.charCodeAt(0));

function floatsOf(bytes) {
  const floats = new Float32Array(bytes.length / 2);
  for (let i = 0; i < floats.length; i++) {
    const half = bytes[2 * i] | (bytes[2 * i + 1] << 8);
    const sign = half & 0x8000 ? -1 : 1, exponent = (half >> 10) & 31, fraction = half & 1023;
    floats[i] = sign * (exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24);
  }
  return floats;
}
