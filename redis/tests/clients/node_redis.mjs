// What node-redis makes of BF.*, in RESP2 and RESP3, by its own interface. The port of a server
// with the module, and `ebbtide.bf-commands yes`, is the argument.
import assert from 'node:assert';
import { createRequire } from 'node:module';

const { createClient } = createRequire(`${process.cwd()}/`)('redis');

for (const RESP of [2, 3]) {
    const client = createClient({ url: `redis://127.0.0.1:${process.argv[2]}`, RESP });
    await client.connect();
    await client.flushAll();
    assert.equal(await client.bf.reserve('b', 0.01, 1000), 'OK');
    assert.equal(await client.bf.reserve('e', 0.01, 1000, { EXPANSION: 2 }), 'OK');
    assert.equal(await client.bf.add('b', 'foo'), true);
    assert.equal(await client.bf.add('b', 'foo'), false);
    assert.deepEqual(await client.bf.mAdd('b', ['foo', 'bar']), [false, true]);
    assert.equal(await client.bf.exists('b', 'bar'), true);
    assert.deepEqual(await client.bf.mExists('b', ['bar', 'none']), [true, false]);
    assert.deepEqual(
        await client.bf.insert('made', ['x', 'x'], { CAPACITY: 100, ERROR: 0.01 }), [true, false]);
    assert.equal(await client.bf.card('b'), 2);
    const info = await client.bf.info('b');
    assert.equal(info['Capacity'], 1000);
    assert.equal(info['Number of items inserted'], 2);
    assert.equal(info['Expansion rate'], null);
    await assert.rejects(client.bf.scanDump('b', 0), /EB\.SCANDUMP/);
    await client.close();
    console.log(`node-redis, RESP${RESP}: passed`);
}
