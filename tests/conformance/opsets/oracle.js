// Runs models with onnxruntime and writes what they give: `node oracle.js MANIFEST`. The manifest is a list of
// {model, inputs: [{name, type, dims, file}], result}; each result becomes a JSON file beside which the outputs lie.
'use strict';
const fs = require('fs');
const path = require('path');
const ort = require(require.resolve('onnxruntime-node', {paths: [process.env.ORACLE_FOLDER || process.cwd()]}));

const ARRAYS = {
  float32: Float32Array, float64: Float64Array, int8: Int8Array, uint8: Uint8Array, int16: Int16Array, uint16: Uint16Array,
  int32: Int32Array, uint32: Uint32Array, int64: BigInt64Array, uint64: BigUint64Array, bool: Uint8Array, float16: Uint16Array,
};

function load(input) {
  const bytes = fs.readFileSync(input.file);
  if (input.type === 'string') return new ort.Tensor('string', JSON.parse(bytes), input.dims);
  const Kind = ARRAYS[input.type];
  const copy = new Uint8Array(bytes);  // aligned at 0, as a typed array wants it
  return new ort.Tensor(input.type, new Kind(copy.buffer, 0, copy.byteLength / Kind.BYTES_PER_ELEMENT), input.dims);
}

async function run(entry) {
  const session = await ort.InferenceSession.create(entry.model, {graphOptimizationLevel: 'disabled', logSeverityLevel: 4});
  const feeds = {};
  for (const input of entry.inputs) feeds[input.name] = load(input);
  const given = await session.run(feeds);
  return session.outputNames.map((name, i) => {
    const tensor = given[name];
    const file = `${entry.result}.${i}`;
    if (tensor.type === 'string') {
      fs.writeFileSync(file, JSON.stringify(tensor.data));
    } else {
      fs.writeFileSync(file, Buffer.from(tensor.data.buffer, tensor.data.byteOffset, tensor.data.byteLength));
    }
    return {name, type: tensor.type, dims: tensor.dims, file};
  });
}

async function main() {
  const entries = JSON.parse(fs.readFileSync(path.resolve(process.argv[2]), 'utf8'));
  for (const entry of entries) {
    let answer;
    try {
      answer = {outputs: await run(entry)};
    } catch (error) {
      answer = {error: String(error.message)};
    }
    fs.writeFileSync(entry.result, JSON.stringify(answer));
  }
}

main();
