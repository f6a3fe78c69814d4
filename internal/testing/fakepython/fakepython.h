#pragma once

extern int fakepython_held, fakepython_finalizing;
