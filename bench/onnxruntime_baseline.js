// The baseline of bench/fused.py and bench/networks.py: ONNX Runtime runs a network as often as standard input says.
//
// usage: ORACLE_FOLDER=FOLDER node onnxruntime_baseline.js MODEL.onnx THREADS     FOLDER has node_modules/onnxruntime-node
//
// Same protocol as engine_bench: one line of facts, then one median in milliseconds for each count read.
'use strict';
const readline = require('readline');
const ort = require(require.resolve('onnxruntime-node', {paths: [process.env.ORACLE_FOLDER || process.cwd()]}));

// The inputs that engine_bench gives: element i of n is i / n, whole numbers are 1.
function makeInput(info) {
  const dims = info.shape.map((dim) => (typeof dim === 'number' && dim > 0 ? dim : 1));
  const count = dims.reduce((product, dim) => product * dim, 1);
  if (info.type === 'int64') return new ort.Tensor('int64', new BigInt64Array(count).fill(1n), dims);
  return new ort.Tensor('float32', Float32Array.from({length: count}, (_, i) => i / count), dims);
}

function median(values) {
  values.sort((a, b) => a - b);
  return values[values.length >> 1];
}

async function main() {
  const session = await ort.InferenceSession.create(process.argv[2], {
    intraOpNumThreads: Number(process.argv[3]), graphOptimizationLevel: 'all', logSeverityLevel: 4,
  });
  const feeds = {};
  for (const info of session.inputMetadata) feeds[info.name] = makeInput(info);
  const first = (await session.run(feeds))[session.outputNames[0]];
  const sum = Array.from(first.data, Math.abs).reduce((total, value) => total + value, 0);
  console.log(`ready output=${sum.toPrecision(6)}`);
  for await (const line of readline.createInterface({input: process.stdin})) {
    const times = [];
    for (let i = 0; i < Math.max(Number(line), 1); ++i) {
      const begin = process.hrtime.bigint();
      await session.run(feeds);
      times.push(Number(process.hrtime.bigint() - begin) / 1e6);
    }
    console.log(median(times));
  }
}

main();
